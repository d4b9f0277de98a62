// Some samples, ready for a model. On the CPU; the engine moves them.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace yoke::data {

struct Batch {
  std::vector<torch::Tensor> inputs;  // what the first block takes
  torch::Tensor target;
  int64_t samples = 0;
  // Of the global batch that this is a part of, and what its mean counts in the mean of all parts: 1 where
  // parts are equal.
  int64_t global_samples = 0;
  double weight = 1;
};

}  // namespace yoke::data
