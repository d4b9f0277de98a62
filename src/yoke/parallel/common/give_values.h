// Broadcasts the values of one rank.
#pragma once

#include <torch/types.h>

#include <string>
#include <utility>
#include <vector>

#include "yoke/comm/communicator.h"
#include "yoke/parallel/state.h"

namespace yoke::parallel {

// Broadcasts the values of rank `root`, whatever their type. Collective.
void give_values(const NamedTensors& tensors, comm::Communicator& comm, int root);

}  // namespace yoke::parallel
