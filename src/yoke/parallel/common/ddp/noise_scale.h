// Gradient noise scale, and with it the batch size that pays (McCandlish et al. 2018). Free if the gradient
// is known for a small and a large batch, as in data parallel training before and after the reduction.
#pragma once

#include <optional>

namespace yoke::parallel {

class NoiseScale {
 public:
  // Squared norms of the gradient of `small_batch` samples (mean over ranks) and of all `big_batch` samples.
  void add(double small_norm2, double big_norm2, double small_batch, double big_batch);

  // tr(covariance) / |gradient|^2 in samples: the critical batch size, at which a step makes half the
  // progress of a step with the exact gradient. Empty until the gradient estimate exceeds its noise.
  std::optional<double> value() const;

 private:
  // Numerator and denominator are averaged separately: each is unbiased, their quotient is not.
  double gradient2_ = 0;
  double covariance_ = 0;
  double weight_ = 0;
};

}  // namespace yoke::parallel
