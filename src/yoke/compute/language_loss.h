// Mean cross entropy of a language model's logits, which are huge and not needed afterwards.
#pragma once

#include <torch/types.h>

namespace yoke::compute {

// Mean over all positions of logits [.., padded vocabulary] (see vocabulary_head.h) against int64 targets
// [..]. Consumes the logits: on CUDA in bf16 they are overwritten by their gradient in one pass, which saves
// two reads and a copy of their size. Elsewhere it is plain cross entropy.
torch::Tensor consume_language_loss(const torch::Tensor& logits, const torch::Tensor& target,
                                    int64_t vocabulary);

}  // namespace yoke::compute
