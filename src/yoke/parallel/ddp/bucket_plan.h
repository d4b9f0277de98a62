// Which gradients travel together.
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
};

// How buckets lie, where that is not left to the order in which gradients come.
struct BucketLayout {
  std::vector<std::vector<int64_t>> plan;  // parameters of each bucket; none: as they come
  int64_t multiple = 1;  // elements of a bucket are a multiple of it; the last ones are padding
  // Buckets have no memory: the hook takes the gradients as backward() made them, and parameters keep none.
  bool passing = false;
  // Most gradients that each parameter gets in one backward(). Empty: the first backward() is watched, with
  // all its gradients in memory.
  std::vector<int> uses;
};

// Cuts `order` (indices into `gradients`, as they become ready) into buckets: one type and device each,
// closed when full. The first one is small, so that communication begins early. A gradient is never cut.
std::vector<std::vector<int64_t>> plan_buckets(const std::vector<GradientSize>& gradients,
                                               const std::vector<int64_t>& order, const BucketSizes& sizes);

}  // namespace yoke::parallel
