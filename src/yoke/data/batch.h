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
};

}  // namespace yoke::data
