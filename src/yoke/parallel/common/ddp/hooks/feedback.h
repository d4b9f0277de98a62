// Shared by the hooks: wire buffers, working precision, and error feedback.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>

#include "yoke/parallel/common/ddp/comm_hook.h"

namespace yoke::parallel {

// fp64 for buckets of fp64, otherwise fp32.
torch::ScalarType working_type(const GradientBucket& bucket);

// Uninitialised memory of the communicator on the bucket's device.
torch::Tensor wire_tensor(const GradientBucket& bucket, int64_t count, torch::ScalarType type);

// Zeroed memory for a message of `bytes` bytes from every rank: [ranks, bytes].
torch::Tensor message_tensor(const GradientBucket& bucket, int64_t bytes);

// For errors and fingerprints: "topk of bucket 3".
std::string name_of(const GradientBucket& bucket, const char* operation);

// Error feedback: what compression of a bucket omitted in earlier steps.
class Feedback {
 public:
  // The gradients plus the omitted error, in the working type; `flat` itself if it has that type. Valid until
  // store().
  torch::Tensor& compensate(GradientBucket& bucket);

  torch::Tensor& error() { return error_; }
  torch::Tensor& values() { return values_; }
  const torch::Tensor& values() const { return values_; }

  // Copies `values`, which now hold the result, to `flat`.
  void store(GradientBucket& bucket);

 private:
  torch::Tensor error_;
  torch::Tensor values_;
};

// Calls body(begin, end) on parts of [0, count) that start at multiples of `unit`, on LibTorch's threads.
void for_blocks(int64_t count, int64_t unit, const std::function<void(int64_t begin, int64_t end)>& body);

// Per-bucket state, by index.
template <class State>
class StateOfBuckets {
 public:
  State& of(const GradientBucket& bucket) { return states_[bucket.index]; }
  void forget() { states_.clear(); }

 private:
  std::unordered_map<int, State> states_;
};

// Calls body(T{}) with the working type's T.
template <class Body>
void with_type(const torch::Tensor& values, Body&& body) {
  if (values.scalar_type() == torch::kFloat64)
    body(double{});
  else
    body(float{});
}

}  // namespace yoke::parallel
