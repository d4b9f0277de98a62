#include "yoke/optim/grad_scaler.h"

#include <gtest/gtest.h>
#include <torch/utils.h>

#include <limits>

#include "yoke/base/error.h"

namespace yoke::optim {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// Runs steps: 'g' finite gradients, 'o' an overflow.
void run(GradScaler& scaler, int count, char kind) {
  for (int i = 0; i < count; ++i) {
    scaler.set_found_inf(kind == 'o');
    scaler.update();
  }
}

TEST(GradScaler, DoublesAfterTwoThousandGoodStepsAndHalvesOnOverflow) {
  GradScaler scaler;
  run(scaler, 1999, 'g');
  EXPECT_EQ(scaler.current_scale(), 65536);
  run(scaler, 1, 'g');
  EXPECT_EQ(scaler.current_scale(), 131072);
  run(scaler, 1, 'o');
  EXPECT_EQ(scaler.current_scale(), 65536);
}

TEST(GradScaler, AnOverflowStartsTheCountAgain) {
  GradScaler scaler;
  run(scaler, 1999, 'g');
  run(scaler, 1, 'o');
  EXPECT_EQ(scaler.current_scale(), 32768);
  run(scaler, 1999, 'g');
  EXPECT_EQ(scaler.current_scale(), 32768);
  run(scaler, 1, 'g');
  EXPECT_EQ(scaler.current_scale(), 65536);
  run(scaler, 3, 'o');
  run(scaler, 2, 'g');
  EXPECT_EQ(scaler.current_scale(), 8192);
  EXPECT_EQ(scaler.growth_tracker(), 2);
}

TEST(GradScaler, StopsGrowingWhereFp32Ends) {
  GradScaler scaler({.init_scale = 0x1p126, .growth_interval = 1});
  run(scaler, 3, 'g');
  EXPECT_EQ(scaler.current_scale(), 0x1p127);
}

TEST(GradScaler, HasAFloor) {
  GradScaler scaler;
  run(scaler, 16, 'o');
  EXPECT_EQ(scaler.current_scale(), 1);
  run(scaler, 200, 'o');
  EXPECT_EQ(scaler.current_scale(), 1);
  scaler.restore(0x1p-130, 0);  // of a run without one
  EXPECT_EQ(scaler.current_scale(), 1);
  GradScaler lower({.min_scale = 0.25});
  run(lower, 200, 'o');
  EXPECT_EQ(lower.current_scale(), 0.25);
  EXPECT_THROW(GradScaler({.init_scale = 0.5}), std::exception);
}

TEST(GradScaler, UnscalesEveryNumberFormatAndFindsInf) {
  GradScaler scaler({.init_scale = 4});
  std::vector<torch::Tensor> parameters;
  for (torch::ScalarType type : {torch::kFloat, torch::kDouble, torch::kBFloat16}) {
    parameters.push_back(torch::zeros({3}, type).requires_grad_());
    parameters.back().mutable_grad() = torch::full({3}, 8.0, type);
  }
  parameters.push_back(torch::zeros({3}).requires_grad_());  // no gradient
  EXPECT_TRUE(scaler.unscale(parameters));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(parameters[i].grad()[2].item<double>(), 2);

  parameters[1].mutable_grad()[1] = kInf;
  EXPECT_FALSE(scaler.unscale(parameters));
  EXPECT_TRUE(scaler.found_inf());
  scaler.update();
  EXPECT_EQ(scaler.current_scale(), 2);
  EXPECT_FALSE(scaler.found_inf());
}

TEST(GradScaler, KeepsAGradientThatFp16WouldLose) {
  auto gradient_with_scale = [](double scale) {
    GradScaler scaler({.init_scale = scale});
    torch::Tensor w = torch::ones({1}).requires_grad_();
    // The gradient 2^-26 passes through fp16 on its way.
    scaler.scale((w.to(torch::kHalf).to(torch::kFloat) * 0x1p-26).sum()).backward();
    EXPECT_TRUE(scaler.unscale({w}));
    return w.grad().item<float>();
  };
  EXPECT_EQ(gradient_with_scale(1), 0);
  EXPECT_EQ(gradient_with_scale(65536), 0x1p-26f);
}

TEST(GradScaler, SwitchedOffPassesEverythingThrough) {
  GradScaler scaler({.enabled = false});
  torch::Tensor loss = torch::ones({1});
  EXPECT_TRUE(scaler.scale(loss).is_same(loss));
  torch::Tensor w = torch::ones({1}).requires_grad_();
  w.mutable_grad() = torch::full({1}, kInf);
  EXPECT_TRUE(scaler.unscale({w}));
  scaler.update();
  EXPECT_EQ(scaler.current_scale(), 1);
}

TEST(GradScaler, ComesBackFromACheckpoint) {
  GradScaler scaler;
  scaler.restore(1024, 1999);
  run(scaler, 1, 'g');
  EXPECT_EQ(scaler.current_scale(), 2048);
  EXPECT_THROW(scaler.restore(0, 0), CheckpointError);
  EXPECT_THROW(scaler.restore(std::numeric_limits<double>::quiet_NaN(), 0), CheckpointError);
  EXPECT_THROW(scaler.restore(1, -1), CheckpointError);
}

TEST(GradScaler, RefusesFp16GradientsAndSenselessOptions) {
  torch::Tensor w = torch::ones({1}, torch::kHalf).requires_grad_();
  w.mutable_grad() = torch::ones({1}, torch::kHalf);
  GradScaler scaler;
  EXPECT_THROW(scaler.unscale({w}), std::exception);
  EXPECT_THROW(GradScaler({.growth = 1.0}), std::exception);
  EXPECT_THROW(GradScaler({.backoff = 1.0}), std::exception);
}

}  // namespace
}  // namespace yoke::optim
