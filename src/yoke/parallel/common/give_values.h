// One rank's values for everybody.
#pragma once

#include <torch/types.h>

#include <string>
#include <utility>
#include <vector>

#include "yoke/comm/communicator.h"

namespace yoke::parallel {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

// The values of rank `root` for everybody, whatever their type. Collective.
void give_values(const NamedTensors& tensors, comm::Communicator& comm, int root);

}  // namespace yoke::parallel
