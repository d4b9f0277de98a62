// How noisy gradients are, and with it how large a batch pays (McCandlish et al. 2018): free where the same
// gradient is known of a small and of a large batch, as data parallel training has it before and after the
// reduction.
#pragma once

#include <optional>

namespace yoke::parallel {

class NoiseScale {
 public:
  // Squared norms of the gradient of `small_batch` samples (mean over ranks) and of all `big_batch` of them.
  void add(double small_norm2, double big_norm2, double small_batch, double big_batch);

  // tr(covariance) / |gradient|^2 in samples: the critical batch size. At it, a step does half of what a step
  // with the exact gradient would. Empty until the estimate of the gradient is above its noise.
  std::optional<double> value() const;

 private:
  // Numerator and denominator are averaged apart: each is unbiased, their quotient is not.
  double gradient2_ = 0;
  double covariance_ = 0;
  double weight_ = 0;
};

}  // namespace yoke::parallel
