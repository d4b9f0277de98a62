// What a loss will be multiplied by before backward(), for losses that compute their gradient in forward.
//
// Gradients of fp16 logits, and of micro-batches, then have their final magnitude when they are written: no
// second pass, and no underflow.
#pragma once

#include <torch/types.h>

namespace yoke::compute {

// While it exists, losses of this thread expect `factor`, an fp32 scalar on their device; undefined: 1.
// Another factor in backward() costs a pass, never correctness.
class ExpectedLossFactor {
 public:
  explicit ExpectedLossFactor(torch::Tensor factor);
  ~ExpectedLossFactor();
  ExpectedLossFactor(const ExpectedLossFactor&) = delete;
  ExpectedLossFactor& operator=(const ExpectedLossFactor&) = delete;

 private:
  torch::Tensor before_;
};

// Undefined: 1.
const torch::Tensor& expected_loss_factor();

}  // namespace yoke::compute
