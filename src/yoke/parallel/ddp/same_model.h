// Replicas begin equal: the same parameters and buffers on every rank, with rank 0's values.
#pragma once

#include <torch/nn/module.h>

#include <string>
#include <utility>
#include <vector>

#include "yoke/comm/communicator.h"

namespace yoke::parallel {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

// Each tensor once, under its first name.
NamedTensors distinct_parameters(const torch::nn::Module& module);
NamedTensors distinct_buffers(const torch::nn::Module& module);

// Collective. Throws ConfigError on every rank when two ranks differ in number, names, shapes or types: it
// names the first difference, with both sides.
void check_same_model(const NamedTensors& parameters, const NamedTensors& buffers, comm::Communicator& comm);

// The values of rank `root` for everybody. Collective.
void give_values(const NamedTensors& tensors, comm::Communicator& comm, int root);

}  // namespace yoke::parallel
