// The runtime against the simulator, on two clocks.
//
// On a logical clock the two must agree to the last digit: whoever waits in the one waits in the other, for
// the same thing. On the real one, stages that sleep take as long, all together, as simulated.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>

#include "logical_clock.h"
#include "yoke/base/clock.h"
#include "yoke/comm/run_ranks.h"
#include "yoke/compute/deferred_gradients.h"
#include "yoke/parallel/schedule/pipeline/pipeline_strategy.h"
#include "yoke/sim/pipeline.h"

namespace yoke {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr double kForward = 0.03, kBackward = 0.06, kWeight = 0.03;  // seconds of a pass

// The real clock of a busy machine is late: the simulation is told how long each sleep really was, which also
// tells how late the machine is. A message from thread to thread is late in the same way, and is in no pass:
// it takes up to three wake-ups (the sender's and the receiver's queue, the receiver). What is left is the
// runtime's own, and on a machine in time there is nothing else. The best of some runs counts.
constexpr double kTolerance = 0.05;
constexpr double kWakeUps = 3;
constexpr int kAttempts = 5;

// Threads that hardly work go before those that do, where the test may ask for that.
class Precedence {
 public:
  Precedence() {
    pthread_getschedparam(pthread_self(), &policy_, &before_);
    sched_param first{};
    first.sched_priority = sched_get_priority_min(SCHED_FIFO);
    pthread_setschedparam(pthread_self(), SCHED_FIFO, &first);  // inherited by the threads of ranks
  }
  ~Precedence() { pthread_setschedparam(pthread_self(), policy_, &before_); }

 private:
  int policy_ = SCHED_OTHER;
  sched_param before_{};
};

thread_local double logical_time = 0;
std::atomic<bool> logical = false;

// A pass, or a part of it, as the clock of the test has it.
void spend(double seconds) {
  if (logical)
    logical_time += seconds;
  else
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

struct Sleep : torch::autograd::Function<Sleep> {
  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& x, const torch::Tensor& weight) {
    ctx->save_for_backward({weight});
    spend(kForward);
    return x * 1.0;
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    torch::Tensor weight = ctx->get_saved_variables()[0];
    spend(kBackward - kWeight);
    auto add = [weight] {
      spend(kWeight);
      compute::add_to_gradient(weight, torch::zeros_like(weight));
    };
    if (!compute::take_gradient(weight, add)) add();
    return {gradients[0], torch::Tensor()};
  }
};

class OneWeight : public torch::nn::Module {
 public:
  OneWeight() { weight = register_parameter("weight", torch::ones({1})); }
  torch::Tensor weight;
};

models::Model sleeping_model(int blocks) {
  models::Model model;
  model.name = "sleeper";
  model.module = std::make_shared<torch::nn::Module>();
  for (int i = 0; i < blocks; ++i) {
    auto part = model.module->register_module(fmt::format("block{}", i), std::make_shared<OneWeight>());
    auto forward = [part](const models::Tensors& inputs) -> models::Tensors {
      return {Sleep::apply(inputs[0], part->weight)};
    };
    model.blocks.push_back({fmt::format("block{}", i), forward, {part}});
  }
  model.loss = [](const models::Tensors& outputs, const torch::Tensor&) { return outputs[0].mean(); };
  return model;
}

using Pass = std::tuple<int, plan::ScheduleOp, int, int>;  // worker, what, chunk, micro-batch

struct Measured {
  double makespan = 0;            // from the first rank's start to the last one's end
  std::map<Pass, double> passes;  // seconds of each
};

// Runs one batch to its end on every rank, after one in which shapes are agreed on.
Measured run_once(const parallel::PipelineLayout& layout, bool on_logical_clock) {
  logical = on_logical_clock;
  auto clock = [&] { return on_logical_clock ? logical_time : now_seconds(); };
  std::mutex mutex;
  Measured measured;
  double first = 1e300, last = 0;
  test::SendTimes sent;
  comm::run_ranks(layout.ranks(), [&](comm::Communicator& inner) {
    test::LogicalClockCommunicator comm(inner, sent, logical_time);
    models::Model model = sleeping_model(static_cast<int>(layout.blocks.size()));
    parallel::PipelineStage stage(model, layout, comm);
    auto optimizer = optim::make({}, stage.versions.newest());
    optim::GradScaler scaler({.enabled = false});
    parallel::PipelineStrategyOptions options;
    options.runner.segments = {{0, model.blocks.size(), false}};
    parallel::PipelineStrategy strategy(model, stage, *optimizer, scaler, options);
    torch::Tensor input = torch::ones({layout.request.microbatches, 4});
    torch::Tensor target = torch::zeros({layout.request.microbatches});
    auto run = [&] {
      strategy.acquire();
      strategy.compute({input}, target, {1, true, 0.1});
      strategy.drain();
    };
    run();
    comm.barrier({}).wait();
    logical_time = 0;
    double begin = clock();
    run();
    double end = clock();
    std::lock_guard lock(mutex);
    for (const auto* events : {&strategy.events(), &strategy.drained()})
      for (const parallel::PipelineEvent& one : *events)
        measured.passes[{stage.place.worker, one.op, one.chunk, one.microbatch}] = one.end - one.start;
    first = std::min(first, begin);
    last = std::max(last, end);
  });
  measured.makespan = last - first;
  return measured;
}

double simulated(const parallel::PipelineLayout& layout, const sim::PipelineCosts& costs) {
  return sim::simulate_pipeline(plan::make_schedule(layout.request), costs).makespan;
}

sim::PipelineCosts in_time(const parallel::PipelineLayout& layout) {
  int chunks = layout.request.chunks;  // of a stage, whose costs are asked for
  sim::PipelineCosts costs;
  costs.forward = {kForward * chunks};
  costs.backward = {kBackward * chunks};
  costs.weight_backward = {kWeight * chunks};
  return costs;
}

sim::PipelineCosts as_measured(const Measured& measured) {
  sim::PipelineCosts costs;
  costs.pass_seconds = [&](const plan::ScheduleAction& pass, int worker) {
    return measured.passes.at({worker, pass.op, pass.chunk, pass.microbatch});
  };
  return costs;
}

class PipelineClock : public testing::TestWithParam<const char*> {
 protected:
  parallel::PipelineLayout layout() const {
    parallel::PipelineOptions options;
    options.schedule = GetParam();
    options.microbatches = 6;
    constexpr int kStages = 3;
    bool interleaved = options.schedule == "interleaved";
    std::vector<double> costs(static_cast<size_t>(interleaved ? 2 * kStages : kStages), 1.0);
    return parallel::make_layout(options, kStages, 1, costs, options.microbatches);
  }
};

TEST_P(PipelineClock, IsTheSimulationOnALogicalClock) {
  Measured measured = run_once(layout(), /*on_logical_clock=*/true);
  EXPECT_NEAR(measured.makespan, simulated(layout(), in_time(layout())), 1e-9);
}

TEST_P(PipelineClock, AgreesWithTheSimulation) {
  Precedence precedence;
  double least = 1e300;  // of what the runtime took for itself, as a share
  for (int i = 0; i < kAttempts && least > kTolerance; ++i) {
    Measured measured = run_once(layout(), /*on_logical_clock=*/false);
    double expected = simulated(layout(), as_measured(measured));
    double late = expected - simulated(layout(), in_time(layout()));
    std::printf("%s: simulated %.4f s, of that late %.4f s, measured %.4f s\n", GetParam(), expected, late,
                measured.makespan);
    // Messages take no time there: nothing that really ran in this order can be quicker.
    EXPECT_GE(measured.makespan, 0.999 * expected);
    least = std::min(least, (measured.makespan - expected - kWakeUps * std::max(0.0, late)) / expected);
  }
  EXPECT_LE(least, kTolerance);
}

INSTANTIATE_TEST_SUITE_P(EverySchedule, PipelineClock,
                         testing::Values("naive", "gpipe", "1f1b", "pipedream", "2bw", "interleaved",
                                         "zb-h1"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return "schedule_" + name;
                         });

}  // namespace
}  // namespace yoke
