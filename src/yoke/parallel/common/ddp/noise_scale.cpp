#include "yoke/parallel/common/ddp/noise_scale.h"

#include <cmath>

namespace yoke::parallel {
namespace {

constexpr double kKept = 0.95;  // of the average, per measurement

}  // namespace

void NoiseScale::add(double small_norm2, double big_norm2, double small_batch, double big_batch) {
  if (!std::isfinite(small_norm2) || !std::isfinite(big_norm2) || big_batch <= small_batch) return;
  double gradient2 = (big_batch * big_norm2 - small_batch * small_norm2) / (big_batch - small_batch);
  double covariance = (small_norm2 - big_norm2) / (1 / small_batch - 1 / big_batch);
  gradient2_ = kKept * gradient2_ + (1 - kKept) * gradient2;
  covariance_ = kKept * covariance_ + (1 - kKept) * covariance;
  weight_ = kKept * weight_ + (1 - kKept);
}

std::optional<double> NoiseScale::value() const {
  if (weight_ == 0 || gradient2_ <= 0 || covariance_ < 0) return std::nullopt;
  return covariance_ / gradient2_;
}

}  // namespace yoke::parallel
