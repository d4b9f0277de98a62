// Sums over whole layers, for optimizers that scale the step of each layer by norms (LARS, LAMB).
//
// An optimizer may hold pieces of parameters (ZeRO) or slices of them (tensor parallel): it adds up its own
// squares, and `complete` adds those of the other ranks.
#pragma once

#include <torch/types.h>

#include <functional>
#include <string>
#include <vector>

#include "yoke/optim/optimizer.h"

namespace yoke::optim {

struct LayerSums {
  std::vector<std::string> layers;  // names of the parameters, the same on all ranks that complete sums
  std::vector<int64_t> layer_of;    // of each tensor of the optimizer; -1: padding, which counts nowhere
  // `sums`: fp64 [any, layers]. Adds the other ranks' to it, in place. Collective: once per update.
  std::function<void(torch::Tensor& sums)> complete;
};

// Returns false, having done nothing, if this optimizer needs no sums.
bool complete_layer_sums(Optimizer& optimizer, LayerSums sums);

// Whether the optimizer of this name needs them.
bool needs_layer_sums(const std::string& optimizer);

}  // namespace yoke::optim
