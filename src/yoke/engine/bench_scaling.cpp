#include "yoke/engine/bench_scaling.h"

#include "yoke/base/clock.h"
#include "yoke/comm/tensors/tensors.h"
#include "yoke/compute/device.h"
#include "yoke/engine/synthetic_batches.h"
#include "yoke/metrics/quantiles.h"

namespace yoke::engine {
namespace {

constexpr int64_t kRounds = 5;

// One kind of step, with its times.
class Runner {
 public:
  explicit Runner(const WorkerOptions& options)
      : worker_(make_worker(options)),
        // Ranks of one replica compute on the same batches.
        batches_(synthetic_batches(*worker_, options.batch_size,
                                   static_cast<uint64_t>(worker_->strategy->share().part + 1))) {
    for (int64_t i = 0; i < kBenchWarmUpSteps; ++i) step();
  }

  void round(int64_t steps) {
    const int64_t before = sent();
    for (int64_t i = 0; i < steps; ++i) {
      Stopwatch watch;
      const double computed = step();
      seconds.push_back(watch.seconds());
      std::optional<parallel::Communication> talk = worker_->strategy->communication();
      busy.push_back(computed - (talk ? talk->exposed : 0));
      if (!talk) continue;
      comm.push_back(talk->seconds);
      exposed.push_back(talk->exposed);
    }
    worker_->strategy->drain();  // with ZeRO the last step's parameters are still in flight
    bytes_sent = (sent() - before) / steps;
  }

  // The same with a barrier after every step.
  void round_in_step(int64_t steps, comm::Communicator& all) {
    for (int64_t i = 0; i < steps; ++i) {
      Stopwatch watch;
      step();
      all.barrier().wait();
      in_step.push_back(watch.seconds());
    }
  }

  torch::Device device() const { return worker_->device; }

  std::vector<double> seconds, in_step, comm, exposed;
  std::vector<double> busy;  // forward, backward and update, less what they waited for other ranks
  int64_t bytes_sent = 0;

 private:
  int64_t sent() const {
    const parallel::Traffic traffic = worker_->strategy->traffic();
    return traffic.pipeline + traffic.data + traffic.tensor;
  }

  // Returns the seconds of forward, backward and update.
  double step() {
    const data::Batch& batch = batches_[turn_++ % batches_.size()];
    parallel::Strategy& strategy = *worker_->strategy;
    strategy.acquire();
    const parallel::ComputeResult result = strategy.compute(batch.inputs, batch.target, {});
    strategy.agree({result.loss, 0});
    Stopwatch update;
    strategy.commit({kBenchLearningRate, /*measure_norm=*/false});
    compute::synchronize(worker_->device);
    return result.forward_seconds + result.backward_seconds + update.seconds();
  }

  std::unique_ptr<Worker> worker_;
  std::vector<data::Batch> batches_;
  size_t turn_ = 0;
};

double over_ranks(double value, ReduceOp op, torch::Device device, comm::Communicator& comm) {
  torch::Tensor tensor = torch::tensor({value}, torch::kFloat64).to(device);
  comm::all_reduce(comm, tensor, op, "a figure");
  return tensor.item<double>();
}

// Median time of steps with a barrier but without communication.
double slowest_of_each(const std::vector<double>& seconds, torch::Device device, comm::Communicator& comm) {
  torch::Tensor slowest = torch::tensor(seconds, torch::kFloat64).to(device);
  comm::all_reduce(comm, slowest, ReduceOp::kMax, "the slowest");
  slowest = slowest.cpu();
  const double* begin = slowest.const_data_ptr<double>();
  return metrics::median({begin, begin + slowest.numel()});
}

// Rounds of `together`, with rounds of the same ranks without communication between them.
ScalingResult::Alone alternate(Runner& together, WorkerOptions options, comm::Communicator& comm,
                               int64_t each) {
  options.links = {};
  Runner alone(options);
  for (int64_t i = 0; i < kRounds; ++i) {
    comm.barrier().wait();
    together.round(each);
    comm.barrier().wait();
    alone.round(each);
    comm.barrier().wait();
    alone.round_in_step(each, comm);
  }
  return {over_ranks(metrics::median(alone.seconds), ReduceOp::kMean, together.device(), comm),
          slowest_of_each(alone.seconds, together.device(), comm), metrics::median(alone.in_step)};
}

}  // namespace

ScalingResult bench_scaling(const WorkerOptions& options, comm::Communicator& comm, int64_t steps) {
  Runner together(options);
  auto memory = static_cast<double>(compute::peak_memory_bytes(together.device()));
  const int64_t each = std::max<int64_t>(1, steps / kRounds);
  ScalingResult result;
  if (options.holds_part()) {
    comm.barrier().wait();
    together.round(kRounds * each);
    if (options.parallel.tensor <= 1)
      result.compute_seconds =
          over_ranks(metrics::median(together.busy), ReduceOp::kMean, together.device(), comm);
  } else {
    result.alone = alternate(together, options, comm, each);
    result.compute_seconds = result.alone->step_seconds;
  }
  result.step_seconds_median = metrics::median(together.seconds);
  result.step_seconds_p95 = metrics::p95(together.seconds);
  if (!together.comm.empty()) {
    result.comm_seconds = metrics::median(together.comm);
    result.exposed_comm_seconds = metrics::median(together.exposed);
  }
  result.bytes_sent = together.bytes_sent;
  result.peak_memory_bytes =
      static_cast<int64_t>(over_ranks(memory, ReduceOp::kMax, together.device(), comm));
  return result;
}

}  // namespace yoke::engine
