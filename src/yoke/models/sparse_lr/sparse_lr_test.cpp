#include "yoke/models/sparse_lr/sparse_lr.h"

#include <gtest/gtest.h>

namespace yoke::models {
namespace {

TEST(SparseLr, EqualsTheDenseProduct) {
  Model model = build({.name = "sparse_lr", .features = 5});
  torch::NoGradGuard no_grad;
  auto parameters = model.module->named_parameters();
  parameters["weight"].copy_(torch::tensor({1.0, 2.0, 3.0, 4.0, 5.0}).view({5, 1}));
  parameters["bias"].fill_(0.5);
  // Rows: features 0 and 3, none, feature 4 twice.
  Tensors inputs = {torch::tensor({0, 3, 4, 4}), torch::tensor({1.0F, -1.0F, 2.0F, 0.5F}),
                    torch::tensor({0, 2, 2})};
  Tensors outputs = model.forward(inputs);
  EXPECT_TRUE(torch::allclose(outputs[0], torch::tensor({0.5F + 1 - 4, 0.5F, 0.5F + 10 + 2.5F})));
  EXPECT_EQ(model.correct(outputs, torch::tensor({0.0F, 0.0F, 1.0F})).item<int64_t>(), 2);
}

TEST(SparseLr, StartsUndecided) {
  Model model = build({.name = "sparse_lr", .features = 5});
  Tensors outputs = model.forward({torch::tensor({1}), torch::tensor({3.0F}), torch::tensor({0})});
  EXPECT_NEAR(model.loss(outputs, torch::tensor({1.0F})).item<double>(), std::log(2.0), 1e-6);
}

}  // namespace
}  // namespace yoke::models
