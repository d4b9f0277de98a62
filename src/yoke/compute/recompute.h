// Activation checkpointing: forget activations in forward, compute them again in backward.
#pragma once

#include <torch/types.h>

#include <functional>
#include <vector>

namespace yoke {

using RecomputeFunction = std::function<std::vector<torch::Tensor>(const std::vector<torch::Tensor>&)>;

// Runs `function` on `inputs` without keeping what backward would need; backward runs it once more.
// Gradients are bit-identical to a plain call: random state (dropout) and autocast are put back for the second
// run, and BatchNorm statistics are not updated again (see in_recomputation()). `function` must not change
// state that its result depends on, and what it captures must stay alive until backward.
std::vector<torch::Tensor> recompute(const RecomputeFunction& function, const std::vector<torch::Tensor>& inputs);

// True while backward runs a function again: layers with running statistics leave them alone then.
bool in_recomputation();

}  // namespace yoke
