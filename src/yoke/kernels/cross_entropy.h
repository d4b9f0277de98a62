// Softmax cross entropy of rows of logits, forward and gradient.
#pragma once

#include <cstdint>

namespace yoke::kernels {

// For each row: log_sum[r] = log(sum(exp(logits))), loss[r] = log_sum[r] - logits[target], or 0 if the target
// is `ignored`. Requires: other targets in [0, classes).
void cross_entropy(const float* logits, const int64_t* targets, int64_t ignored, int64_t rows,
                   int64_t classes, float* log_sum, float* loss);

// grad = scale * (softmax(logits) - onehot(target)); rows with an `ignored` target get 0.
void cross_entropy_backward(const float* logits, const float* log_sum, const int64_t* targets,
                            int64_t ignored, float scale, int64_t rows, int64_t classes, float* grad);

namespace reference {
// The loss of one row, and its gradient (scale 1).
double cross_entropy(const float* logits, int64_t classes, int64_t target, double* grad);
}  // namespace reference

}  // namespace yoke::kernels
