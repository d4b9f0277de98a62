// The last matrix product of a language model.
#pragma once

#include <torch/types.h>

namespace yoke::compute {

// Logits of x [.., width] against the embedding weight [vocabulary, width].
//
// On CUDA the vocabulary is padded to a multiple of 64 internally, because tensor cores are twice as fast on
// such sizes (50257 -> 50304): the surplus logits are -inf, which softmax and its gradient turn into exact
// zeros. Use without_padding() if the logits themselves are the result.
torch::Tensor vocabulary_logits(const torch::Tensor& x, const torch::Tensor& weight);

// The first `vocabulary` logits.
torch::Tensor without_padding(const torch::Tensor& logits, int64_t vocabulary);

}  // namespace yoke::compute
