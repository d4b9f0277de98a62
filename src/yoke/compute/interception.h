// Weights whose operators are intercepted: slices of layers that are split over ranks.
//
// Tensor parallelism intercepts LibTorch's operators for such weights. Layers with their own kernels ask here
// first, and call LibTorch's operator if it is intercepted. On one device this costs one load.
#pragma once

#include <torch/types.h>

#include <atomic>
#include <cstdint>

namespace yoke::compute {

// Part of a sequence: all of it unless activations are sharded along it.
struct SequencePart {
  int64_t begin = 0;
  int64_t length = 0;
};

struct Interception {
  bool (*weight)(const torch::Tensor& weight) = nullptr;
  bool (*logits)(const torch::Tensor& logits) = nullptr;
  SequencePart (*sequence)(int64_t length) = nullptr;
};

namespace detail {
inline std::atomic<const Interception*> interception = nullptr;
inline const Interception* current_interception() {
  return interception.load(std::memory_order_acquire);
}
}  // namespace detail

// For all threads. `interception` must stay valid.
inline void set_interception(const Interception* interception) {
  detail::interception.store(interception, std::memory_order_release);
}

// Whether at::linear, at::conv2d and similar are intercepted for this weight on this thread.
inline bool is_intercepted(const torch::Tensor& weight) {
  const Interception* active = detail::current_interception();
  return active != nullptr && active->weight(weight);
}

// Whether at::cross_entropy_loss is intercepted: these logits are a slice of the vocabulary's.
inline bool are_sliced_logits(const torch::Tensor& logits) {
  const Interception* active = detail::current_interception();
  return active != nullptr && active->logits(logits);
}

// This rank's part of sequences of `length`, for position embeddings.
inline SequencePart sequence_part(int64_t length) {
  const Interception* active = detail::current_interception();
  return active == nullptr ? SequencePart{0, length} : active->sequence(length);
}

}  // namespace yoke::compute
