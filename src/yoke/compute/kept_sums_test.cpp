#include "yoke/compute/kept_sums.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

namespace yoke::compute {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

TEST(KeptSums, StayWithATensorUntilItIsModified) {
  Tensor gradient = torch::ones({3, 2});
  EXPECT_FALSE(kept_sums(gradient).defined());
  keep_sums(gradient, gradient.sum(0));
  Tensor other_name = gradient;
  EXPECT_TRUE(kept_sums(other_name).equal(torch::full({2}, 3.0f)));
  gradient.add_(1);
  EXPECT_FALSE(kept_sums(gradient).defined());
}

TEST(KeptSums, AreNotThoseOfViewsAndCopies) {
  Tensor gradient = torch::ones({4, 2});
  keep_sums(gradient, gradient.sum(0));
  EXPECT_FALSE(kept_sums(gradient.narrow(0, 1, 2)).defined());
  EXPECT_FALSE(kept_sums(gradient.view({2, 2, 2})).defined());
  EXPECT_FALSE(kept_sums(gradient.clone()).defined());
  EXPECT_FALSE(kept_sums(gradient * 2).defined());
}

// Counts how often the gradient of a bias was found, not computed.
int found = 0;

struct AddBias : torch::autograd::Function<AddBias> {
  static Tensor forward(AutogradContext*, const Tensor& x, const Tensor& bias) { return x + bias; }
  static variable_list backward(AutogradContext*, const variable_list& grads) {
    Tensor sums = kept_sums(grads[0]);
    found += sums.defined();
    return {grads[0], sums.defined() ? sums : grads[0].sum(0)};
  }
};

struct Triple : torch::autograd::Function<Triple> {
  static Tensor forward(AutogradContext*, const Tensor& x) { return 3 * x; }
  static variable_list backward(AutogradContext*, const variable_list& grads) {
    Tensor grad = 3 * grads[0];
    keep_sums(grad, grad.sum(0));
    return {grad};
  }
};

TEST(KeptSums, ReachTheLayerBeforeUnlessOtherGradientsAreAdded) {
  Tensor x = torch::randn({5, 2}), bias = torch::zeros({2}).requires_grad_();
  found = 0;
  Triple::apply(AddBias::apply(x, bias)).sum().backward();
  EXPECT_EQ(found, 1);
  EXPECT_TRUE(bias.grad().equal(torch::full({2}, 15.0f)));
  bias.mutable_grad() = Tensor();
  Tensor y = AddBias::apply(x, bias);
  (Triple::apply(y) + Triple::apply(y)).sum().backward();
  EXPECT_EQ(found, 1);
  EXPECT_TRUE(bias.grad().equal(torch::full({2}, 30.0f)));
}

}  // namespace
}  // namespace yoke::compute
