#include "yoke/engine/verify.h"

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/comm/run_ranks.h"
#include "yoke/engine/speed_split.h"
#include "yoke/engine/verify_pipeline.h"
#include "yoke/engine/verify_ps.h"
#include "yoke/engine/verify_trainee.h"

namespace yoke::engine {
namespace {

// Ranks wait while the first computes the one device's step.
constexpr double kTimeout = 600;

void train_replica(VerifyBench& bench, comm::Communicator& comm) {
  const VerifyOptions& options = bench.options;
  Trainee trainee = bench.trainee(comm.rank(), on_ranks(options.parallel, comm));
  parallel::Strategy& strategy = *trainee.worker->strategy;
  data::DataOptions part = options.data;
  part.batch_size = options.alone.batch_size / comm.size();
  data::Sampler own(bench.dataset->size(), part, static_cast<uint64_t>(options.alone.seed),
                    {comm.rank(), comm.size()});
  own.set_shares(parse_split(options.split, comm.size()));
  const bool has_gradients = !trainee.worker->shards || comm.rank() == 0;
  for (int64_t step = 0; step < options.steps; ++step) {
    Differences found;
    double loss = trainee.compute(*bench.dataset, own.indices(step), options.parallel.accumulate,
                                  own.weight_at(own.after({}, step)));
    std::vector<torch::Tensor> gradients = strategy.gradients();
    if (comm.rank() == 0) bench.compute_reference(step, loss, 1);
    comm.barrier().wait();
    found.loss = relative_difference(loss, bench.expected_loss);
    if (has_gradients)
      found.gradient = relative_difference(gradients, bench.reference.worker->strategy->gradients());
    comm.barrier().wait();
    if (comm.rank() == 0) bench.commit_reference();
    strategy.commit({bench.lr(), false});
    strategy.drain();
    comm.barrier().wait();
    found.parameter = relative_difference(trainee.parameters, bench.reference.parameters);
    bench.note(found);
  }
}

void check_cut(const VerifyOptions& options) {
  int64_t parts = options.copies() * options.parallel.accumulate;
  if (options.alone.batch_size % parts != 0)
    throw ConfigError("layout '{}': a batch of {} cannot be cut into {} equal parts. Set data.batch_size.",
                      options.layout, options.alone.batch_size, parts);
  parse_split(options.split, static_cast<int>(options.copies()));
}

}  // namespace

double Differences::largest() const {
  return std::max({loss, gradient, parameter});
}

Verification verify(const VerifyOptions& options) {
  check_cut(options);
  VerifyBench bench(options);
  if (options.served) {
    verify_with_servers(bench);
    return std::move(bench.result);
  }
  auto body = options.parallel.pipeline.stages > 1 ? train_stage : train_replica;
  comm::run_ranks(
      options.ranks, [&](comm::Communicator& comm) { body(bench, comm); }, kTimeout);
  return std::move(bench.result);
}

}  // namespace yoke::engine
