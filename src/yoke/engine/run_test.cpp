// A run of one rank; tests/processes/test_own_loop.py has several, and kills them.
#include "yoke/engine/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <csignal>
#include <limits>

#include "yoke/base/error.h"
#include "yoke/checkpoint/checkpoint.h"
#include "yoke/checkpoint/format/test_folder.h"
#include "yoke/engine/parameter_hash.h"

namespace yoke {
namespace {

using testing::HasSubstr;

// A loop with everything that a run tracks.
struct Loop {
  explicit Loop(uint64_t seed = 1) {
    torch::manual_seed(seed);
    net = torch::nn::Sequential(torch::nn::Linear(4, 8), torch::nn::BatchNorm1d(8), torch::nn::Linear(8, 1));
    optimizer =
        std::make_unique<torch::optim::SGD>(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
    ema = torch::zeros({1});
  }

  void track(yoke::Run& run) {
    run.track("model", net);
    run.track("optimizer", optimizer);
    run.track("scaler", scaler);
    run.track("ema", ema);
    run.track("seen", seen);
  }

  void step() {
    optimizer->zero_grad();
    torch::Tensor loss = net->forward(torch::randn({16, 4})).square().mean();
    scaler.scale(loss).backward();
    if (scaler.unscale(net->parameters())) optimizer->step();
    scaler.update();
    ema.mul_(0.9).add_(0.1 * loss.detach());
    seen += 16;
    optimizer->param_groups()[0].options().set_lr(0.05 / static_cast<double>(1 + seen));
  }

  std::string hash() const { return engine::parameter_hash(*net); }

  torch::nn::Sequential net{nullptr};
  std::unique_ptr<torch::optim::SGD> optimizer;
  optim::GradScaler scaler{{.init_scale = 1024, .growth_interval = 3}};
  torch::Tensor ema;
  int64_t seen = 0;
};

template <class Function>
std::string message_of(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "(no error)";
}

TEST(Run, ResumesBitIdenticallyWithEverythingItTracks) {
  checkpoint::format::TestFolder folder;
  Loop whole;
  for (int i = 0; i < 12; ++i) whole.step();

  World world = join();
  for (int64_t until : {5, 7, 12}) {
    Loop part(/*seed=*/static_cast<uint64_t>(until));  // what it starts with is replaced
    if (until == 5) part = Loop();
    yoke::Run run(world, {.dir = folder.path() / "run", .every_steps = 3});
    part.track(run);
    EXPECT_EQ(run.resume(), until == 5 ? 0 : until == 7 ? 5 : 7);
    while (run.steps() < until) {
      part.step();
      run.step();
    }
    run.finish();
    if (until < 12) continue;
    EXPECT_EQ(part.hash(), whole.hash());
    EXPECT_TRUE(part.ema.equal(whole.ema));
    EXPECT_EQ(part.seen, whole.seen);
    EXPECT_EQ(part.scaler.current_scale(), whole.scaler.current_scale());
    EXPECT_EQ(part.optimizer->param_groups()[0].options().get_lr(),
              whole.optimizer->param_groups()[0].options().get_lr());
    EXPECT_TRUE(torch::rand({3}).equal([] {
      Loop again;
      for (int i = 0; i < 12; ++i) again.step();
      return torch::rand({3});
    }()));
  }
  // The weights keep their own names.
  auto saved = checkpoint::load(folder.path() / "run").state.model;
  EXPECT_EQ(saved.size(), whole.net->parameters().size() + whole.net->buffers().size());
}

TEST(Run, SavesEveryStepsAndKeepsAFew) {
  checkpoint::format::TestFolder folder;
  World world = join();
  Loop loop;
  yoke::Run run(world, {.dir = folder.path(), .every_steps = 2, .keep = 2, .background = false});
  loop.track(run);
  run.resume();
  for (int i = 0; i < 7; ++i) run.step();
  std::vector<int64_t> steps;
  for (const auto& verdict : checkpoint::format::list(folder.path() / "checkpoints"))
    steps.push_back(verdict.step);
  EXPECT_THAT(steps, testing::UnorderedElementsAre(4, 6));
}

TEST(Run, ASignalStopsItWithItsStateSaved) {
  checkpoint::format::TestFolder folder;
  World world = join();
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU}) {
    Loop loop;
    yoke::Run run(world, {.dir = folder.path() / std::to_string(signal), .every_steps = 0});
    loop.track(run);
    run.resume();
    run.step();
    EXPECT_FALSE(run.stopped());
    EXPECT_EQ(run.exit_code(), 0);
    std::raise(signal);
    run.step();
    EXPECT_TRUE(run.stopped());
    EXPECT_EQ(run.signal(), signal);
    EXPECT_EQ(run.exit_code(), 128 + signal);
    EXPECT_EQ(checkpoint::load(folder.path() / std::to_string(signal)).step, 2);
  }
}

TEST(Run, MisuseIsRefusedWithTheNextStep) {
  checkpoint::format::TestFolder folder;
  World world = join();
  EXPECT_THAT(message_of([&] { yoke::Run run(world, {}); }), HasSubstr(".dir"));
  Loop loop;
  {
    yoke::Run run(world, {.dir = folder.path()});
    run.track("model", loop.net);
    EXPECT_THAT(message_of([&] { run.track("model", loop.scaler); }), HasSubstr("twice"));
    EXPECT_THAT(message_of([&] { run.step(); }), HasSubstr("resume()"));
    EXPECT_THAT(message_of([&] { yoke::Run second(world, {.dir = folder.path()}); }), HasSubstr("another"));
    run.resume();
    EXPECT_THAT(message_of([&] { run.track("seen", loop.seen); }), HasSubstr("before"));
    run.step();
    run.finish();
  }
  yoke::Run other(world, {.dir = folder.path()});
  other.track("model", loop.net);
  other.track("optimizer", loop.optimizer);
  EXPECT_THAT(message_of([&] { other.resume(); }), HasSubstr("Track the same things"));
}

TEST(Run, AStateThatIsNotFiniteIsNotSaved) {
  checkpoint::format::TestFolder folder;
  World world = join();
  Loop loop;
  yoke::Run run(world, {.dir = folder.path(), .every_steps = 1});
  loop.track(run);
  run.resume();
  torch::NoGradGuard no_grad;
  loop.net->parameters()[0].fill_(std::numeric_limits<float>::quiet_NaN());
  EXPECT_THAT(message_of([&] { run.step(); }),
              testing::AllOf(HasSubstr("0.weight"), HasSubstr("not finite")));
  EXPECT_FALSE(checkpoint::load_newest(folder.path()));
}

}  // namespace
}  // namespace yoke
