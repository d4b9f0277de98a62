#include "yoke/kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "yoke/kernels/simd.h"

namespace yoke::kernels {
namespace {

YOKE_INLINE float largest(const float* x, int64_t count) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  Vec best = broadcast(kLowest);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) best = at_least(best, load(x + i));
  float result = kLowest;
  for (int64_t lane = 0; lane < kLanes; ++lane) result = best[lane] > result ? best[lane] : result;
  for (; i < count; ++i) result = x[i] > result ? x[i] : result;
  return result;
}

YOKE_INLINE float sum_of_exponentials(const float* x, int64_t count, float shift) {
  Vec a{};
  Vec b{};
  int64_t i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    a += exponential(load(x + i) - shift);
    b += exponential(load(x + i + kLanes) - shift);
  }
  float sum = sum_of(a + b);
  for (; i < count; ++i) sum += std::exp(x[i] - shift);
  return sum;
}

YOKE_INLINE void cross_entropy_body(const float* logits, const int64_t* targets, int64_t ignored,
                                    int64_t rows, int64_t classes, float* log_sum, float* loss) {
  for (int64_t r = 0; r < rows; ++r, logits += classes) {
    float shift = largest(logits, classes);
    log_sum[r] = shift + std::log(sum_of_exponentials(logits, classes, shift));
    loss[r] = targets[r] == ignored ? 0 : log_sum[r] - logits[targets[r]];
  }
}

YOKE_INLINE void cross_entropy_backward_body(const float* logits, const float* log_sum,
                                             const int64_t* targets, int64_t ignored, float scale,
                                             int64_t rows, int64_t classes, float* grad) {
  for (int64_t r = 0; r < rows; ++r, logits += classes, grad += classes) {
    if (targets[r] == ignored) {
      std::fill_n(grad, classes, 0.0f);
      continue;
    }
    float shift = log_sum[r];
    int64_t i = 0;
    for (; i + kLanes <= classes; i += kLanes) store(grad + i, scale * exponential(load(logits + i) - shift));
    for (; i < classes; ++i) grad[i] = scale * std::exp(logits[i] - shift);
    grad[targets[r]] -= scale;
  }
}

}  // namespace

YOKE_KERNEL(cross_entropy,
            (const float* logits, const int64_t* targets, int64_t ignored, int64_t rows, int64_t classes,
             float* log_sum, float* loss),
            (logits, targets, ignored, rows, classes, log_sum, loss))
YOKE_KERNEL(cross_entropy_backward,
            (const float* logits, const float* log_sum, const int64_t* targets, int64_t ignored, float scale,
             int64_t rows, int64_t classes, float* grad),
            (logits, log_sum, targets, ignored, scale, rows, classes, grad))

namespace reference {

double cross_entropy(const float* logits, int64_t classes, int64_t target, double* grad) {
  double shift = *std::max_element(logits, logits + classes);
  double sum = 0;
  for (int64_t i = 0; i < classes; ++i) sum += std::exp(logits[i] - shift);
  for (int64_t i = 0; i < classes; ++i) grad[i] = std::exp(logits[i] - shift) / sum - (i == target ? 1 : 0);
  return shift + std::log(sum) - logits[target];
}

}  // namespace reference
}  // namespace yoke::kernels
