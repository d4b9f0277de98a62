#include "yoke/models/model.h"

#include <gtest/gtest.h>

namespace yoke::models {
namespace {

TEST(Model, RunsItsBlocksInOrder) {
  Model model;
  model.blocks.push_back({"double", [](const Tensors& x) { return Tensors{x[0] * 2}; }, {}});
  model.blocks.push_back({"add", [](const Tensors& x) { return Tensors{x[0] + 1}; }, {}});
  EXPECT_EQ(model.forward({torch::full({1}, 3.0)})[0].item<float>(), 7);
}

}  // namespace
}  // namespace yoke::models
