#include "yoke/parallel/placement/stage/weight_versions.h"

#include <gtest/gtest.h>

namespace yoke::parallel {
namespace {

// One weight that each update lowers by 1.
struct OneWeightStage {
  explicit OneWeightStage(bool stash)
      : parameter(torch::full({1}, 10.0, torch::kDouble).requires_grad_()),
        versions({{"weight", parameter}}, stash),
        optimizer(optim::make({.optimizer = "sgd", .lr = 1, .momentum = 0}, versions.newest())) {}

  void update(bool keep) {
    parameter.mutable_grad() = torch::ones_like(parameter);
    versions.begin_update(keep, versions.take_gradients());
    optimizer->step(1);
    optimizer->zero_grad();
    versions.end_update();
  }
  double value() const { return parameter.item<double>(); }

  torch::Tensor parameter;
  WeightVersions versions;
  std::unique_ptr<optim::Optimizer> optimizer;
};

TEST(WeightVersions, KeepsWhatIsNeededAndUsesItsMemoryAgain) {
  OneWeightStage stage(/*stash=*/true);
  torch::Tensor first = (stage.parameter * stage.parameter).sum();  // saved for backward: version 0
  stage.update(/*keep=*/true);
  EXPECT_EQ(stage.versions.alive(), 2);
  EXPECT_EQ(stage.value(), 10);  // until somebody asks for the new one
  stage.versions.use(1);
  EXPECT_EQ(stage.value(), 9);
  stage.versions.use(0);
  first.backward();
  EXPECT_EQ(stage.parameter.grad().item<double>(), 20);  // of the weight as it was
  stage.versions.release(0);
  EXPECT_EQ(stage.versions.alive(), 1);
  stage.update(/*keep=*/true);
  stage.versions.use(2);
  EXPECT_EQ(stage.value(), 8);
  stage.versions.use(1);
  EXPECT_EQ(stage.value(), 9);
}

TEST(WeightVersions, UpdatesInPlaceWhatNobodyNeeds) {
  for (bool stash : {false, true}) {
    OneWeightStage stage(stash);
    const void* memory = stage.parameter.data_ptr();
    stage.update(/*keep=*/false);
    stage.versions.use(stage.versions.newest_version());
    EXPECT_EQ(stage.value(), 9);
    EXPECT_EQ(stage.versions.alive(), 1);
    EXPECT_EQ(stage.parameter.data_ptr(), memory);
  }
}

TEST(WeightVersions, ALateUpdateDoesNotKeepWhatWasReleasedMeanwhile) {
  OneWeightStage stage(/*stash=*/true);
  stage.parameter.mutable_grad() = torch::ones_like(stage.parameter);
  std::vector<torch::Tensor> gradients = stage.versions.take_gradients();
  EXPECT_FALSE(stage.parameter.grad().defined());
  stage.versions.use(0);
  stage.versions.release(0);  // its last pass
  stage.versions.begin_update(/*keep=*/true, gradients);
  stage.optimizer->step(1);
  stage.versions.end_update();
  EXPECT_EQ(stage.versions.alive(), 1);
  stage.versions.use(1);
  EXPECT_EQ(stage.value(), 9);
  stage.update(/*keep=*/true);
  EXPECT_EQ(stage.versions.alive(), 2);  // this one was not
}

TEST(WeightVersions, StartsAnewFromTheNewest) {
  OneWeightStage stage(/*stash=*/true);
  stage.update(/*keep=*/true);
  stage.versions.start_anew();
  EXPECT_EQ(stage.versions.newest_version(), 0);
  EXPECT_EQ(stage.versions.alive(), 1);
  EXPECT_EQ(stage.value(), 9);
}

}  // namespace
}  // namespace yoke::parallel
