// A batch of samples for a model. On the CPU; the strategy moves them.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace yoke::data {

struct Batch {
  std::vector<torch::Tensor> inputs;  // inputs of the first block
  torch::Tensor target;
  int64_t samples = 0;
  // Size of the global batch that this is a part of, and weight of its mean in the mean of all parts: 1 if
  // parts are equal.
  int64_t global_samples = 0;
  double weight = 1;
};

}  // namespace yoke::data
