// The loop with a strategy whose every answer is written down beforehand.
#include "yoke/engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "yoke/base/error.h"
#include "yoke/data/dataset.h"
#include "yoke/engine/stop_signal.h"

namespace yoke::engine {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Step {
  double loss = 1;
  bool finite_gradients = true;
};

class Scripted : public parallel::Strategy {
 public:
  explicit Scripted(std::vector<Step> steps) : steps_(std::move(steps)) {}

  void acquire() override {}
  parallel::ComputeResult compute(const std::vector<torch::Tensor>&, const torch::Tensor&,
                                  const parallel::MicroBatch&) override {
    if (++computed == signal_at) std::raise(SIGTERM);
    return {torch::tensor(now().loss, torch::kFloat64), 0, 0};
  }
  parallel::StepNews agree(const parallel::StepNews& here) override {
    ++asked_;
    return here;
  }
  parallel::CommitResult commit(const parallel::CommitOptions& options) override {
    measured.push_back(options.measure_norm);
    bool checks = options.measure_norm || scale.has_value();
    bool updated = now_committed().finite_gradients || !checks;
    if (updated && !now_committed().finite_gradients) poisoned = true;
    return {std::nullopt, updated};
  }
  std::optional<std::string> first_non_finite_gradient() override { return "w"; }
  std::optional<double> loss_scale() const override { return scale; }
  std::vector<torch::Tensor> forward(const std::vector<torch::Tensor>&) override { return {}; }
  std::vector<parallel::StatePiece> state() override { return {}; }

  std::optional<double> scale;
  std::vector<bool> measured;
  int64_t computed = 0;   // micro-batches
  int64_t signal_at = 0;  // comes with this one
  bool poisoned = false;  // an update with gradients that are not finite

 private:
  const Step& now() const { return steps_[std::min(asked_, steps_.size() - 1)]; }
  const Step& now_committed() const { return steps_[std::min(asked_ - 1, steps_.size() - 1)]; }
  std::vector<Step> steps_;
  size_t asked_ = 0;
};

struct Losses : metrics::Sink {
  explicit Losses(std::vector<double>& list) : losses(list) {}
  void write(const metrics::Record& record) override { losses.push_back(record.loss); }
  std::vector<double>& losses;
};

struct Training {
  explicit Training(Scripted& scripted) : strategy(scripted) {
    plan.total_steps = 4;
    plan.log_every = 4;
    plan.learning_rate = [](int64_t) { return 0.1; };
    data.samples = 10;
    data.batch_size = 4;
    data.drop_last = false;
  }
  Outcome go() {
    auto samples = data::open(data, data::Split::kTrain, {SampleKind::kVector, {3}, 2}, 1);
    data::Loader loader(*samples, data, 1);
    Engine engine(strategy, loader, plan);
    engine.attach(std::make_unique<Losses>(losses));
    if (due) engine.attach_checkpoints(due, [this](const SaveRequest& request) { saved = request.step; });
    return engine.run({});
  }
  Scripted& strategy;
  LoopPlan plan;
  data::DataOptions data;
  std::vector<double> losses;
  std::function<bool(int64_t)> due;
  int64_t saved = -1;
};

TEST(Engine, ASkippedStepDoesNotSpoilTheLoss) {
  Scripted strategy({{1, true}, {kNaN, false}, {3, true}, {5, true}});
  Training run(strategy);
  run.plan.skip_non_finite = true;
  Outcome outcome = run.go();
  EXPECT_EQ(outcome.skipped, 1);
  EXPECT_THAT(run.losses, ElementsAre(3));  // of 1, 3, 5
  EXPECT_EQ(outcome.final_loss, 3);
}

TEST(Engine, TheLastLossStaysWhereNothingFiniteCame) {
  Scripted strategy({{2, true}, {kNaN, false}});
  Training run(strategy);
  run.plan.skip_non_finite = true;
  run.plan.log_every = 1;
  EXPECT_EQ(run.go().final_loss, 2);
  EXPECT_TRUE(std::isnan(run.losses.back()));
}

TEST(Engine, SkippingChecksTheGradientsOfEveryStep) {
  for (bool wait : {true, false}) {
    Scripted strategy({{1, true}, {1, false}, {1, true}});
    Training run(strategy);
    run.plan.wait_for_loss = wait;
    run.plan.skip_non_finite = true;
    EXPECT_EQ(run.go().skipped, 1);
    EXPECT_FALSE(strategy.poisoned);
    EXPECT_THAT(strategy.measured, ElementsAre(true, true, true, true));
  }
}

TEST(Engine, StoppingChecksThemWhereSomethingIsRecorded) {
  Scripted strategy({{1, true}});
  Training run(strategy);
  run.due = [](int64_t step) { return step == 2; };
  run.go();
  EXPECT_THAT(strategy.measured, ElementsAre(false, true, false, true));
  EXPECT_EQ(run.saved, 4);
}

TEST(Engine, ALossThatIsNotFiniteStopsAlsoInFp16) {
  for (std::optional<double> scale : {std::optional<double>(), std::optional<double>(65536)}) {
    for (bool wait : {true, false}) {
      Scripted strategy({{1, true}, {kNaN, false}});
      strategy.scale = scale;
      Training run(strategy);
      run.plan.wait_for_loss = wait;
      EXPECT_THAT([&] { run.go(); }, testing::ThrowsMessage<ConfigError>(
                                         AllOf(HasSubstr(" is not finite"), HasSubstr("It was not saved"))));
      EXPECT_EQ(run.saved, -1);
    }
  }
}

TEST(Engine, OverflowsAtTheLeastLossScaleComeToAnEnd) {
  Scripted strategy({{1, false}});
  strategy.scale = 1;
  Training run(strategy);
  run.plan.total_steps = 1000;
  EXPECT_THAT([&] { run.go(); }, testing::ThrowsMessage<ConfigError>(
                                     AllOf(HasSubstr("step 32: the gradients of 32 steps in a row"),
                                           HasSubstr("bf16"), HasSubstr("train.lr"))));
}

TEST(Engine, OverflowsAreTakenWhileTheLossScaleFalls) {
  Scripted strategy({{1, false}});
  strategy.scale = 2;
  Training run(strategy);
  run.plan.total_steps = 200;
  EXPECT_EQ(run.go().skipped, 200);
}

TEST(Engine, SkippingComesToAnEnd) {
  Scripted strategy({{kNaN, false}});
  Training run(strategy);
  run.plan.total_steps = 1000;
  run.plan.skip_non_finite = true;
  EXPECT_THAT([&] { run.go(); },
              testing::ThrowsMessage<ConfigError>(HasSubstr("step 100: 100 steps in a row were skipped")));
}

TEST(Engine, WhileNothingIsUpdatedNoCheckpointGoesForAGoodOne) {
  std::vector<Step> steps(20, Step{1, true});
  steps.push_back({kNaN, false});  // and so on
  Scripted strategy(steps);
  Training run(strategy);
  run.plan.total_steps = 1000;
  run.plan.skip_non_finite = true;
  run.due = [](int64_t step) { return step % 20 == 0; };
  EXPECT_THROW(run.go(), ConfigError);
  EXPECT_EQ(run.saved, 20);
}

TEST(Engine, ASignalEndsTheRunAfterAllBatchesOfItsStep) {
  StopSignals signals;
  Scripted strategy({{1, true}});
  strategy.signal_at = 6;
  Training run(strategy);
  run.plan.accumulate = 4;
  run.due = [](int64_t) { return false; };
  Outcome outcome = run.go();
  EXPECT_EQ(outcome.stopped_by_signal, SIGTERM);
  EXPECT_EQ(outcome.steps, 2);
  EXPECT_EQ(strategy.computed, 8);
  EXPECT_EQ(run.saved, 2);
}

TEST(Engine, CountsTheSamplesAndEpochsThatThereWere) {
  Scripted strategy({{1, true}});
  Training run(strategy);  // an epoch is 4 + 4 + 2 samples
  Outcome outcome = run.go();
  EXPECT_EQ(outcome.samples, 14);
  EXPECT_EQ(outcome.own_samples, 14);
  EXPECT_DOUBLE_EQ(outcome.epochs, 4.0 / 3);
}

}  // namespace
}  // namespace yoke::engine
