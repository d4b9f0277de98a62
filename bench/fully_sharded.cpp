// A step of fully sharded training beside data parallel, on the same ranks, steps in turn:
//   ninja -C build bench_fully_sharded && build/yoke run --nproc 2 build/bench_fully_sharded gpt 4 10
// Arguments: gpt (the GPT of 6 layers and width 256) or vgg, samples of each rank, rounds. One thread a rank.
// Prints the median of each and the median of the ratios of neighbouring rounds.
#include <fmt/core.h>
#include <torch/utils.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/comm/join.h"
#include "yoke/metrics/quantiles.h"
#include "yoke/parallel/common/ddp/ddp_strategy.h"
#include "yoke/parallel/common/ddp/same_model.h"
#include "yoke/parallel/sync/sharded/fully_sharded_strategy.h"

namespace {

using namespace yoke;
using metrics::median;

models::Model build(const std::string& name) {
  torch::manual_seed(1);
  models::ModelOptions options;
  options.name = name == "gpt" ? "gpt2" : "vgg_small";
  if (name == "gpt") {
    options.layers = 6;
    options.heads = 8;
    options.width = 256;
    options.vocabulary = 8192;
    options.positions = 128;
    options.dropout = 0;
  }
  return models::build(options);
}

struct Sample {
  torch::Tensor x, y;
};

Sample sample_of(const std::string& name, int64_t samples) {
  if (name != "gpt") return {torch::randn({samples, 3, 32, 32}), torch::randint(10, {samples})};
  torch::Tensor ids = torch::randint(8192, {samples, 129});
  return {ids.narrow(1, 0, 128).contiguous(), ids.narrow(1, 1, 128).contiguous()};
}

optim::OptimizerOptions sgd() {
  optim::OptimizerOptions options;
  options.optimizer = "sgd";
  options.momentum = 0.9;
  return options;
}

double step(parallel::Strategy& strategy, const Sample& sample, comm::Communicator& comm) {
  comm.barrier().wait();
  Stopwatch watch;
  for (int i = 0; i < 3; ++i) {
    strategy.acquire();
    strategy.compute({sample.x}, sample.y, {});
    strategy.commit({0.01, false});
  }
  comm.barrier().wait();
  return watch.seconds() / 3;
}

struct Fully {
  models::Model model;
  FullyShard shard;
  std::unique_ptr<optim::Optimizer> optimizer;
  optim::GradScaler scaler{{.enabled = false}};
  parallel::FullyShardedStrategy strategy;

  Fully(const std::string& name, comm::Communicator& comm, const FullyShardOptions& options)
      : model(build(name)),
        shard(model, comm, options),
        optimizer(optim::make(sgd(), shard.named_parameters())),
        strategy(model, *optimizer, scaler, {}, shard) {}
};

}  // namespace

int main(int argc, char** argv) {
  try {
    std::string name = argc > 1 ? argv[1] : "gpt";
    int64_t samples = argc > 2 ? std::atoll(argv[2]) : 4;
    int rounds = argc > 3 ? std::atoi(argv[3]) : 10;
    torch::set_num_threads(1);
    World world = join();
    comm::Communicator& comm = world.comm();
    Sample sample = sample_of(name, samples);

    models::Model whole = build(name);
    auto optimizer = optim::make(sgd(), parallel::distinct_parameters(*whole.module));
    optim::GradScaler scaler({.enabled = false});
    parallel::DdpStrategy ddp(whole, *optimizer, scaler, {}, comm, {});
    FullyShardOptions gathering;
    gathering.share = false;
    Fully shared(name, comm, {}), gathered(name, comm, gathering);

    std::vector<double> times[3], ratios[2];
    for (int i = -2; i < rounds; ++i) {  // the first ones do not count
      double a = step(ddp, sample, comm), b = step(shared.strategy, sample, comm),
             c = step(gathered.strategy, sample, comm);
      if (i < 0) continue;
      times[0].push_back(a);
      times[1].push_back(b);
      times[2].push_back(c);
      ratios[0].push_back(a / b);
      ratios[1].push_back(a / c);
    }
    if (world.rank() == 0)
      fmt::print(
          "{} x {} on {} ranks: ddp {:.1f} ms, fully sharded {:.1f} ms (speed {:.2f} of ddp), gathering "
          "{:.1f} "
          "ms ({:.2f})\n",
          name, samples, world.size(), 1e3 * median(times[0]), 1e3 * median(times[1]), median(ratios[0]),
          1e3 * median(times[2]), median(ratios[1]));
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return static_cast<int>(error.code());
  }
}
