// When ranges move: during which part of a worker's step.
#include "yoke/parallel/sync/servers/overlap.h"

#include <gmock/gmock.h>
#include <torch/cuda.h>

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/parallel/sync/servers/ps_strategy.h"
#include "yoke/plan/policies/policy.h"
#include "yoke/ps/test_messenger.h"

namespace yoke::parallel {
namespace {

using ::testing::HasSubstr;

// A worker whose servers, this test, write down what happens in which order.
class Diary {
 public:
  explicit Diary(bool overlap, torch::Device on = torch::kCPU) : device_(on) {
    messenger_.answer_to = [this](int, const comm::Message& request, std::span<std::byte> into) {
      return answer(request, into);
    };
    models::ModelOptions options;
    options.name = "mlp";
    options.sizes = {16, 12, 8, 4};
    torch::manual_seed(3);
    model_ = models::build(options);
    model_.module->to(on);
    for (models::Block& block : model_.blocks)
      block.forward = [this, name = block.name, forward = block.forward](const models::Tensors& inputs) {
        events_.push_back("forward " + name);
        models::Tensors outputs = forward(inputs);
        if (outputs[0].requires_grad())
          outputs[0].register_hook([this, name](const torch::Tensor&) {
            events_.push_back("backward " + name);
            if (fail_ && name == model_.blocks.front().name) throw std::runtime_error("it fell");
          });
        return outputs;
      };
    std::vector<optim::NamedTensor> parameters;
    for (const auto& item : model_.module->named_parameters())
      parameters.emplace_back(item.key(), item.value());
    optimizer_ = optim::make({}, std::move(parameters));
    PsSetup setup;
    setup.messenger = &messenger_;
    setup.policy = {plan::Rule::kSync, 1, 0, 0};
    setup.ps.overlap = overlap;
    setup.ps.range_bytes = 64;
    OneDeviceOptions device;
    device.device = on;
    device.segments = {{.begin = 0, .end = model_.blocks.size(), .recompute = false}};
    strategy_ = std::make_unique<PsStrategy>(model_, *optimizer_, scaler_, device, setup);
    release(0);
  }

  // The events of one step.
  std::vector<std::string> step(bool measures = false) {
    events_.clear();
    strategy_->acquire();
    strategy_->compute({torch::randn({2, 16}, device_)}, torch::tensor({1, 3}, device_),
                       {1, true, 0.1, measures});
    strategy_->agree({torch::zeros({}, device_), 0});
    strategy_->commit({0.1, measures});
    return events_;
  }
  void fail_next() { fail_ = true; }
  PsStrategy& strategy() { return *strategy_; }
  const models::Model& model() const { return model_; }

 private:
  comm::Message answer(const comm::Message& request, std::span<std::byte> into) {
    switch (request.kind) {
      case ps::kOpen:
        return ps::message_with(request.kind, ps::OpenReply{1, 1});
      case ps::kFinished:
        events_.push_back("announced");
        release(++minibatch_);
        return ps::message_with(
            request.kind,
            ps::GrantReply{.verdict = static_cast<int64_t>(plan::Verdict::kAccepted), .update = minibatch_});
      case ps::kPush:
        events_.push_back("push");
        return {};
      case ps::kPull:
        events_.push_back("pull");
        return ps::message_with(request.kind,
                                ps::PullReply{request.get_head<ps::PullHead>().version, /*square=*/1}, into);
      default:
        return {};
    }
  }
  void release(int64_t number) {
    ps::ReleaseHead head;
    head.version = head.minibatch = number;
    ASSERT_EQ(messenger_.deliver(1, ps::message_with(ps::kRelease, head)), "");
  }

  torch::Device device_;
  ps::ScriptedMessenger messenger_{0, 2};
  models::Model model_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  optim::GradScaler scaler_{{.enabled = false}};
  std::vector<std::string> events_;
  int64_t minibatch_ = 0;
  bool fail_ = false;
  std::unique_ptr<PsStrategy> strategy_;
};

size_t place_of(const std::vector<std::string>& events, const std::string& what) {
  return static_cast<size_t>(std::find(events.begin(), events.end(), what) - events.begin());
}

TEST(PsStrategyOverlap, GradientsLeaveAndParametersReturnWhileBackwardRuns) {
  Diary diary(/*overlap=*/true);
  diary.step();  // counts gradients
  const std::vector<std::string> events = diary.step();
  const std::string first = diary.model().blocks.front().name, last = diary.model().blocks.back().name;
  EXPECT_LT(place_of(events, "forward " + last), place_of(events, "announced"));
  EXPECT_LT(place_of(events, "announced"), place_of(events, "backward " + last));
  EXPECT_LT(place_of(events, "push"), place_of(events, "backward " + first));
  EXPECT_LT(place_of(events, "pull"), place_of(events, "backward " + first));
}

TEST(PsStrategyOverlap, WithoutItEverythingMovesAfterBackward) {
  Diary diary(/*overlap=*/false);
  diary.step();
  const std::vector<std::string> events = diary.step();
  const std::string first = diary.model().blocks.front().name;
  for (const char* what : {"announced", "push", "pull"})
    EXPECT_GT(place_of(events, what), place_of(events, "backward " + first)) << what;
}

class OverlapOn : public ::testing::TestWithParam<const char*> {};

TEST_P(OverlapOn, EveryRangeMovesOnceInEveryStep) {
  const torch::Device device(GetParam());
  if (device.is_cuda() && !torch::cuda::is_available()) GTEST_SKIP() << "needs a GPU";
  Diary overlapped(/*overlap=*/true, device), plain(/*overlap=*/false, device);
  for (Diary* one : {&overlapped, &plain}) one->step();  // joins
  const std::vector<std::string> expected = plain.step();
  for (bool measures : {false, true, false}) {
    const std::vector<std::string> events = overlapped.step(measures);
    for (const char* what : {"announced", "push", "pull"})
      EXPECT_EQ(std::count(events.begin(), events.end(), what),
                std::count(expected.begin(), expected.end(), what))
          << what;
  }
}

INSTANTIATE_TEST_SUITE_P(PsStrategyOverlap, OverlapOn, ::testing::Values("cpu", "cuda"));

TEST(PsStrategyOverlap, AStepThatFailedHalfWayCannotBeRepeated) {
  Diary diary(/*overlap=*/true);
  diary.step();
  diary.fail_next();
  EXPECT_THROW(diary.step(), std::runtime_error);
  try {
    diary.step();
    FAIL() << "the step was repeated";
  } catch (const CommError& error) {
    EXPECT_THAT(error.what(), HasSubstr("resume from the last checkpoint"));
  }
}

}  // namespace
}  // namespace yoke::parallel
