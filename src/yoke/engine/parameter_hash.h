// A hash of all parameters: equal hashes mean bit-identical models.
#pragma once

#include <torch/nn/module.h>

#include <string>
#include <utility>
#include <vector>

namespace yoke::engine {

// 32 hex digits: XXH3-128 over names, shapes and bytes of parameters and buffers, in the module's order.
std::string parameter_hash(const torch::nn::Module& module);

// The same over tensors with these names, in this order.
std::string parameter_hash(const std::vector<std::pair<std::string, torch::Tensor>>& tensors);

}  // namespace yoke::engine
