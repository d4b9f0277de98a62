// For strategies that profit from knowing the next batch: an engine tells them, where it can.
#pragma once

#include <torch/types.h>

#include <vector>

namespace yoke::parallel {

class LooksAhead {
 public:
  virtual ~LooksAhead() = default;
  // The inputs of the first micro-batch of the next step, while this step is computed. A hint: it may be
  // missing, given twice, or wrong.
  virtual void upcoming(const std::vector<torch::Tensor>& inputs) = 0;
};

}  // namespace yoke::parallel
