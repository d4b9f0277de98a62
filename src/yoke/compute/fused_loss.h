// Cross entropy whose forward pass overwrites the logits with their gradient. CUDA; fp32, bf16 and fp16.
#pragma once

#include <torch/types.h>

namespace yoke::compute {

// Whether fused_loss supports these logits: fp32 or bf16 on CUDA, fp16 under an ExpectedLossFactor;
// contiguous, requiring grad, kernels built.
bool can_fuse_loss(const torch::Tensor& logits);

torch::Tensor fused_loss(const torch::Tensor& logits, const torch::Tensor& target, int64_t vocabulary);

}  // namespace yoke::compute
