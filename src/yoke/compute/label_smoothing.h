// Label smoothing (Szegedy et al. 2016): targets give their class 1 - a + a / classes, all others a /
// classes.
#pragma once

#include <torch/types.h>

namespace yoke::compute {

// While it lives, losses that this thread computes smooth their targets. Nests.
class LabelSmoothing {
 public:
  explicit LabelSmoothing(double amount);
  ~LabelSmoothing();
  LabelSmoothing(const LabelSmoothing&) = delete;
  LabelSmoothing& operator=(const LabelSmoothing&) = delete;

 private:
  double before_;
};

// 0: targets are used as they are.
double label_smoothing();

// As cross_entropy() of layers.h. Throws ConfigError for logits whose classes are sliced over ranks.
torch::Tensor smoothed_cross_entropy(const torch::Tensor& logits, const torch::Tensor& target, double amount);

}  // namespace yoke::compute
