// Cross entropy whose forward pass leaves the gradient in place of the logits. CUDA, bf16.
#pragma once

#include <torch/types.h>

namespace yoke::compute {

// Whether fused_loss takes these logits: bf16 on CUDA, contiguous, gradients wanted, kernels built.
bool can_fuse_loss(const torch::Tensor& logits);

torch::Tensor fused_loss(const torch::Tensor& logits, const torch::Tensor& target, int64_t vocabulary);

}  // namespace yoke::compute
