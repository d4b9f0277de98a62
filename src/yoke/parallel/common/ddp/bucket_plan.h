// Assigns gradients to buckets.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace yoke::parallel {

struct GradientSize {
  int64_t elements = 0;
  torch::ScalarType type = torch::kFloat32;
  torch::Device device = torch::kCPU;
};

struct BucketSizes {
  int64_t first_bytes = 0;
  int64_t bytes = 0;
  int64_t last_bytes = 0;  // at most, or one gradient; 0: as they come
};

// Explicit bucket layout, instead of the order in which gradients become ready.
struct BucketLayout {
  std::vector<std::vector<int64_t>> plan;  // parameters of each bucket; empty: in the order of readiness
  int64_t multiple = 1;                    // elements of a bucket are a multiple of this; the rest is padding
  // Buckets have no memory: the hook consumes gradients as backward() produces them, and parameters keep
  // none.
  bool passing = false;
  // Maximum number of gradients per parameter in one backward(). Empty: observed in the first backward(),
  // which keeps all gradients in memory.
  std::vector<int> uses;
};

// Divides `order` (indices into `gradients`, by readiness) into buckets of one type and device each, closed
// when full. The first one is small, so that communication starts early; the last one may be, so that little
// is left when backward ends. A gradient is never split.
std::vector<std::vector<int64_t>> plan_buckets(const std::vector<GradientSize>& gradients,
                                               const std::vector<int64_t>& order, const BucketSizes& sizes);

}  // namespace yoke::parallel
