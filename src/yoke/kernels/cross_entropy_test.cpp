#include "yoke/kernels/cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace yoke::kernels {
namespace {

std::vector<float> some_logits(int64_t count) {
  std::vector<float> x(static_cast<size_t>(count));
  for (size_t i = 0; i < x.size(); ++i) x[i] = 9 * std::sin(static_cast<float>(7 * i + 1));
  return x;
}

TEST(CrossEntropy, LossAndGradientEqualTheReference) {
  for (int64_t classes : {1, 2, 10, 16, 33, 1000}) {
    int64_t rows = 3;
    std::vector<float> logits = some_logits(rows * classes), log_sum(3), loss(3), grad(logits.size());
    std::vector<int64_t> targets = {0, classes - 1, classes / 2};
    cross_entropy(logits.data(), targets.data(), -100, rows, classes, log_sum.data(), loss.data());
    cross_entropy_backward(logits.data(), log_sum.data(), targets.data(), -100, 0.5f, rows, classes,
                           grad.data());
    for (int64_t r = 0; r < rows; ++r) {
      std::vector<double> expected(static_cast<size_t>(classes));
      size_t at = static_cast<size_t>(r * classes);
      double value =
          reference::cross_entropy(&logits[at], classes, targets[static_cast<size_t>(r)], expected.data());
      EXPECT_NEAR(loss[static_cast<size_t>(r)], value, 1e-5 * (1 + value));
      for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(grad[at + i], 0.5 * expected[i], 2e-6);
    }
  }
}

TEST(CrossEntropy, IgnoredRowsCostNothingAndPassNoGradient) {
  std::vector<float> logits = some_logits(8), log_sum(2), loss(2), grad(8, 3.0f);
  std::vector<int64_t> targets = {-100, 2};
  cross_entropy(logits.data(), targets.data(), -100, 2, 4, log_sum.data(), loss.data());
  cross_entropy_backward(logits.data(), log_sum.data(), targets.data(), -100, 1, 2, 4, grad.data());
  EXPECT_EQ(loss[0], 0);
  EXPECT_GT(loss[1], 0);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(grad[static_cast<size_t>(i)], 0);
}

TEST(CrossEntropy, SurvivesHugeLogitsAndShowsNan) {
  std::vector<float> logits = {1e4f, -1e4f, 0, std::nanf(""), 0, 0}, log_sum(2), loss(2);
  std::vector<int64_t> targets = {0, 1};
  cross_entropy(logits.data(), targets.data(), -100, 2, 3, log_sum.data(), loss.data());
  EXPECT_NEAR(loss[0], 0, 1e-6);
  EXPECT_TRUE(std::isnan(loss[1]));
}

}  // namespace
}  // namespace yoke::kernels
