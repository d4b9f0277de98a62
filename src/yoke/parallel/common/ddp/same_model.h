// Makes replicas identical at the start: same parameters and buffers on every rank, with rank 0's values.
#pragma once

#include <torch/nn/module.h>

#include "yoke/comm/communicator.h"
#include "yoke/parallel/common/give_values.h"

namespace yoke::parallel {

// Each tensor once, under its first name.
NamedTensors distinct_parameters(const torch::nn::Module& module);
NamedTensors distinct_buffers(const torch::nn::Module& module);

// Collective. Throws ConfigError on every rank if two ranks differ in number, names, shapes or types: it
// names the first difference, with both sides.
void check_same_model(const NamedTensors& parameters, const NamedTensors& buffers, comm::Communicator& comm);

}  // namespace yoke::parallel
