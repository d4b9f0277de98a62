#include "yoke/optim/device_scaler.h"

#include <gtest/gtest.h>
#include <torch/utils.h>

#include <limits>
#include <memory>

#include "yoke/optim/clip.h"
#include "yoke/optim/optimizer.h"

namespace yoke::optim {
namespace {

constexpr float kOverflow = std::numeric_limits<float>::infinity();
constexpr GradScalerOptions kRules{.init_scale = 1024, .growth_interval = 3};

// One parameter with an optimizer, and gradients that are the same for every trainee.
struct Trainee {
  explicit Trainee(const std::string& name) {
    OptimizerOptions options;
    options.optimizer = name;
    options.momentum = 0.9;
    options.weight_decay = 0.01;
    optimizer = make(options, {{"w", weight}});
  }
  void take_gradient(int step, double scale, bool overflow) {
    torch::Tensor gradient = torch::sin(torch::arange(12, torch::kFloat) + step) * scale;
    if (overflow) gradient[5] = step % 2 == 0 ? kOverflow : std::numeric_limits<float>::quiet_NaN();
    weight.mutable_grad() = gradient;
  }
  torch::Tensor weight = torch::linspace(-1, 1, 12).requires_grad_();
  std::unique_ptr<Optimizer> optimizer;
};

// Scales and updates in turn on the device and on the host; `overflows` are steps with a non-finite gradient.
void expect_the_same_as_on_the_host(const std::string& name, double clip_norm, const std::string& overflows) {
  SCOPED_TRACE(name + " " + overflows);
  Trainee ours(name), theirs(name);
  GradScaler scaler(kRules), mirror(kRules);
  DeviceScaler device(mirror, torch::kCPU, clip_norm, kRules);
  ASSERT_TRUE(follow_scaled_update(*ours.optimizer, device.scaled_update()));
  for (int step = 0; step < static_cast<int>(overflows.size()); ++step) {
    const bool overflow = overflows[static_cast<size_t>(step)] == 'o';
    theirs.take_gradient(step, scaler.current_scale(), overflow);
    if (scaler.unscale({theirs.weight})) {
      if (clip_norm > 0) clip_grad_norm({theirs.weight}, clip_norm);
      theirs.optimizer->step(0.1);
    }
    scaler.update();
    ours.take_gradient(step, device.scale().item<double>(), overflow);
    ours.optimizer->set_lr(0.1);
    device.inspect({ours.weight});
    ours.optimizer->update({});
    device.update();
    device.post();
    EXPECT_EQ(device.collect(), overflow) << step;
    EXPECT_EQ(mirror.current_scale(), scaler.current_scale()) << step;
    EXPECT_EQ(mirror.growth_tracker(), scaler.growth_tracker()) << step;
    EXPECT_TRUE(ours.weight.allclose(theirs.weight, 1e-6, 1e-7)) << step;
  }
  auto left = ours.optimizer->state(), right = theirs.optimizer->state();
  for (size_t i = 0; i < left.size(); ++i)
    EXPECT_TRUE(left[i].second.allclose(right[i].second, 1e-6, 1e-7)) << left[i].first;
}

TEST(DeviceScaler, EqualsTheHostsScalerWithEveryOptimizerItSupports) {
  for (const char* name : {"sgd", "adamw"}) {
    expect_the_same_as_on_the_host(name, /*clip_norm=*/0, "ggogggggoog");
    expect_the_same_as_on_the_host(name, /*clip_norm=*/0.5, "oggggog");
  }
}

TEST(DeviceScaler, KeepsToTheFloorAndToTheRangeOfFp32) {
  for (double start : {2.0, 0x1p126}) {
    GradScalerOptions rules{.init_scale = start, .growth_interval = 1};
    expect_the_same_as_on_the_host("sgd", 0, "g");
    GradScaler host(rules);
    DeviceScaler device(host, torch::kCPU, 0, rules);
    torch::Tensor weight = torch::ones({2}).requires_grad_();
    for (int i = 0; i < 4; ++i) {
      weight.mutable_grad() = torch::full({2}, start == 2.0 ? kOverflow : 1.0f);
      device.inspect({weight});
      device.update();
    }
    device.post();
    device.collect();
    EXPECT_EQ(host.current_scale(), start == 2.0 ? 1.0 : 0x1p127);
  }
}

TEST(DeviceScaler, StartsFromARestoredStateAndForgetsNewsFromBefore) {
  GradScaler host(kRules);
  DeviceScaler device(host, torch::kCPU, 0, kRules);
  device.update();
  device.post();
  host.restore(64, 2);
  device.load();
  EXPECT_FALSE(device.collect());
  EXPECT_EQ(device.scale().item<double>(), 64);
  device.update();
  device.post();
  device.collect();
  EXPECT_EQ(host.current_scale(), 128);  // the third good step
}

TEST(DeviceScaler, OptimizersThatCannotFollowSayIt) {
  GradScaler host(kRules);
  DeviceScaler device(host, torch::kCPU, 0, kRules);
  for (const char* name : {"sgd", "adamw", "adagrad", "lbfgs"}) {
    OptimizerOptions options;
    options.optimizer = name;
    options.weight_decay = 0;
    auto optimizer = make(options, {{"w", torch::ones({2}).requires_grad_()}});
    EXPECT_EQ(follow_scaled_update(*optimizer, device.scaled_update()), can_follow_scaled_update(name))
        << name;
  }
}

}  // namespace
}  // namespace yoke::optim
