#include "yoke/compute/label_smoothing.h"

#include <gtest/gtest.h>
#include <torch/utils.h>

namespace yoke::compute {
namespace {

using torch::Tensor;

// Written out: the target's distribution is (1 - a) one-hot + a / classes.
Tensor reference(const Tensor& logits, const Tensor& target, double amount) {
  const Tensor log = torch::log_softmax(logits, -1);
  const int64_t classes = logits.size(-1);
  Tensor wanted = torch::full_like(logits, amount / static_cast<double>(classes));
  wanted.scatter_add_(1, target.unsqueeze(1), torch::full({logits.size(0), 1}, 1 - amount, logits.options()));
  return -(wanted * log).sum(-1).mean();
}

TEST(LabelSmoothing, EqualsItsFormulaWithItsGradient) {
  torch::manual_seed(1);
  const Tensor logits = torch::randn({6, 5}, torch::kDouble), target = torch::randint(5, {6}, torch::kLong);
  for (double amount : {0.1, 0.5}) {
    Tensor ours = logits.clone().requires_grad_(), theirs = logits.clone().requires_grad_();
    Tensor loss = smoothed_cross_entropy(ours, target, amount), expected = reference(theirs, target, amount);
    loss.backward();
    expected.backward();
    EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 1e-12);
    EXPECT_TRUE(ours.grad().allclose(theirs.grad(), 1e-10, 1e-12));
  }
}

TEST(LabelSmoothing, HoldsWhileItsScopeLives) {
  EXPECT_EQ(label_smoothing(), 0);
  {
    LabelSmoothing outer(0.1);
    EXPECT_EQ(label_smoothing(), 0.1);
    {
      LabelSmoothing inner(0);
      EXPECT_EQ(label_smoothing(), 0);
    }
    EXPECT_EQ(label_smoothing(), 0.1);
  }
  EXPECT_EQ(label_smoothing(), 0);
}

}  // namespace
}  // namespace yoke::compute
