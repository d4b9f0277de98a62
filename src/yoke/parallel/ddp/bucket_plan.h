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

// Cuts `order` (indices into `gradients`, as they become ready) into buckets: one type and device each,
// closed when full. The first one is small, so that communication begins early. A gradient is never cut.
std::vector<std::vector<int64_t>> plan_buckets(const std::vector<GradientSize>& gradients,
                                               const std::vector<int64_t>& order, const BucketSizes& sizes);

}  // namespace yoke::parallel
