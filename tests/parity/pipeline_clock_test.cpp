// The runtime against the simulator: stages that sleep take as long, all together, as simulated.
//
// A busy machine wakes sleepers late, so the simulation is told how long each pass really was. What is left
// between the two is the runtime's own: messages, and whatever it does between passes.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>

#include "yoke/base/clock.h"
#include "yoke/comm/run_ranks.h"
#include "yoke/compute/deferred_gradients.h"
#include "yoke/parallel/pipeline/pipeline_strategy.h"
#include "yoke/sim/pipeline.h"

namespace yoke {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr double kForward = 0.03, kBackward = 0.06, kWeight = 0.03;  // seconds of a pass
constexpr double kTolerance = 1.05;
// The best counts. A thread that waits for a message is late too where others have the cores, and that time
// is in no pass; a run in which it adds up to a twentieth is the machine's, three in a row are the runtime's.
constexpr int kAttempts = 3;

// For the same reason the threads go before other work, where the test may ask for that (they hardly work).
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

void sleep_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

struct Sleep : torch::autograd::Function<Sleep> {
  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& x, const torch::Tensor& weight) {
    ctx->save_for_backward({weight});
    sleep_for(kForward);
    return x * 1.0;
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    torch::Tensor weight = ctx->get_saved_variables()[0];
    sleep_for(kBackward - kWeight);
    auto add = [weight] {
      sleep_for(kWeight);
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

Measured run_once(const parallel::PipelineLayout& layout) {
  std::mutex mutex;
  Measured measured;
  double first = 1e300, last = 0;
  comm::run_ranks(layout.ranks(), [&](comm::Communicator& comm) {
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
    run();  // shapes are agreed on in the first batch
    comm.barrier().wait();
    double begin = now_seconds();
    run();
    double end = now_seconds();
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

double simulated(const parallel::PipelineLayout& layout, const Measured& measured) {
  sim::PipelineCosts costs;
  costs.pass_seconds = [&](const plan::ScheduleAction& pass, int worker) {
    return measured.passes.at({worker, pass.op, pass.chunk, pass.microbatch});
  };
  return sim::simulate_pipeline(plan::make_schedule(layout.request), costs).makespan;
}

class PipelineClock : public testing::TestWithParam<const char*> {};

TEST_P(PipelineClock, AgreesWithTheSimulation) {
  parallel::PipelineOptions options;
  options.schedule = GetParam();
  options.microbatches = 6;
  constexpr int kStages = 3;
  bool interleaved = options.schedule == "interleaved";
  std::vector<double> costs(static_cast<size_t>(interleaved ? 2 * kStages : kStages), 1.0);
  parallel::PipelineLayout layout = parallel::make_layout(options, kStages, 1, costs, options.microbatches);
  Precedence precedence;
  double best = 1e300;
  for (int i = 0; i < kAttempts && best > kTolerance; ++i) {
    Measured measured = run_once(layout);
    double expected = simulated(layout, measured);
    std::printf("%s: simulated %.4f s, measured %.4f s\n", GetParam(), expected, measured.makespan);
    // Messages take no time there: nothing that really ran in this order can be quicker.
    EXPECT_GE(measured.makespan, 0.999 * expected);
    best = std::min(best, measured.makespan / expected);
  }
  EXPECT_LE(best, kTolerance);
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
