// What DistributedDataParallel costs on one rank, beside the bare loop, steps in turn:
//   ninja -C build bench_ddp_overhead && build/bench_ddp_overhead [STEPS]
// One thread. Prints medians and the median of the ratios of neighbouring steps.
#include <fmt/core.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <cstdlib>
#include <vector>

#include "yoke/base/clock.h"
#include "yoke/comm/run_ranks.h"
#include "yoke/metrics/quantiles.h"
#include "yoke/models/model.h"
#include "yoke/parallel/common/ddp/distributed_data_parallel.h"

namespace {

using namespace yoke;
using metrics::median;

struct Net {
  models::Model model;
  torch::optim::SGD optimizer;
  explicit Net(const std::string& name)
      : model(models::build({.name = name})),
        optimizer(model.module->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9)) {}
  double step(const torch::Tensor& input, const torch::Tensor& target) {
    Stopwatch watch;
    optimizer.zero_grad(/*set_to_none=*/false);
    model.loss(model.forward({input}), target).backward();
    optimizer.step();
    return watch.seconds();
  }
};

void compare(const char* name, torch::IntArrayRef shape, int steps) {
  comm::run_ranks(1, [&](comm::Communicator& comm) {
    Net bare(name), wrapped(name);
    DistributedDataParallel ddp(*wrapped.model.module, comm);
    torch::Tensor input = torch::randn(shape), target = torch::randint(10, {shape[0]}, torch::kInt64);
    std::vector<double> alone, with, ratios;
    for (int i = -5; i < steps; ++i) {  // the first ones do not count
      // Who goes first takes turns, too.
      double a = i % 2 == 0 ? bare.step(input, target) : 0;
      double b = wrapped.step(input, target);
      if (i % 2 != 0) a = bare.step(input, target);
      if (i < 0) continue;
      alone.push_back(a);
      with.push_back(b);
      ratios.push_back(b / a);
    }
    fmt::print("{}: bare {:.3f} ms, wrapped {:.3f} ms, overhead {:+.2f} %\n", name, 1e3 * median(alone),
               1e3 * median(with), 100 * (median(ratios) - 1));
  });
}

}  // namespace

int main(int argc, char** argv) {
  torch::set_num_threads(1);
  int steps = argc > 1 ? std::atoi(argv[1]) : 200;
  compare("lenet", {64, 1, 28, 28}, 5 * steps);
  compare("vgg_small", {16, 3, 32, 32}, steps);
}
