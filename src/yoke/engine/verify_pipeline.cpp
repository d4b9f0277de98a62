#include "yoke/engine/verify_pipeline.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "yoke/base/error.h"
#include "yoke/comm/run_ranks.h"
#include "yoke/data/sampler.h"
#include "yoke/engine/run_state.h"
#include "yoke/engine/verify_trainee.h"
#include "yoke/parallel/pipeline/gather.h"
#include "yoke/parallel/pipeline/replay.h"
#include "yoke/plan/schedules/orders.h"

namespace yoke::engine {
namespace {

using Tensors = std::vector<torch::Tensor>;

// What all ranks of a verification look at.
struct Bench {
  Bench(const VerifyOptions& what, const Layout& how)
      : options(what), layout(how), alone(alone_options(what)), reference(alone) {
    for (const auto& [name, tensor] : named_tensors(*reference.worker->model.module))
      weights.push_back(tensor.clone());
    auto seed = static_cast<uint64_t>(options.worker.seed);
    dataset = data::open(options.data, data::Split::kTrain, reference.worker->model.sample, seed);
    data::DataOptions cut = options.data;
    cut.batch_size = options.worker.batch_size;
    sampler = std::make_unique<data::Sampler>(dataset->size(), cut, seed);
  }

  static WorkerOptions alone_options(const VerifyOptions& options) {
    WorkerOptions alone = options.worker;
    alone.type = options.type;
    alone.pipeline = {};
    return alone;
  }

  WorkerOptions of_rank(comm::Communicator& comm) const {
    WorkerOptions own = alone;
    own.pipeline = {
        static_cast<int>(layout.pipeline), static_cast<int>(layout.data), {}, layout.schedule, &comm};
    own.accumulate = layout.accumulate;
    own.batch_size = options.worker.batch_size / layout.data / layout.accumulate;
    return own;
  }

  std::vector<int64_t> samples(int64_t step) const { return sampler->indices(step); }

  void note_loss(double loss, double expected) {
    result.loss.push_back(loss);
    result.reference_loss.push_back(expected);
    result.worst.loss =
        std::max(result.worst.loss, std::abs(loss - expected) / std::max(1.0, std::abs(expected)));
  }

  const VerifyOptions& options;
  const Layout& layout;
  WorkerOptions alone;
  Trainee reference;
  Tensors weights;
  std::unique_ptr<data::Dataset> dataset;
  std::unique_ptr<data::Sampler> sampler;
  std::mutex mutex;
  Verification result;
};

// The parameters that the stage holds, here and on the one device.
std::pair<Tensors, Tensors> held(const Trainee& trainee, const Trainee& reference) {
  std::pair<Tensors, Tensors> both;
  const parallel::PipelineStage& stage = *trainee.worker->stage;
  for (size_t i = 0; i < trainee.parameters.size(); ++i) {
    if (!stage.tensors[i].held_by(stage.place.stage)) continue;
    both.first.push_back(trainee.parameters[i]);
    both.second.push_back(reference.parameters[i]);
  }
  return both;
}

std::span<const int64_t> share_of(const std::vector<int64_t>& all, int64_t part, int64_t parts) {
  size_t each = all.size() / static_cast<size_t>(parts);
  return std::span<const int64_t>(all).subspan(each * static_cast<size_t>(part), each);
}

void check_cut(const Bench& bench, int64_t micro_batches) {
  int64_t parts = bench.layout.data * bench.layout.accumulate * micro_batches;
  if (bench.options.worker.batch_size % parts != 0)
    throw ConfigError("layout '{}': a batch of {} cannot be cut into {} equal parts. Set data.batch_size.",
                      bench.layout.text, bench.options.worker.batch_size, parts);
}

void train_beside_one_device(Bench& bench, comm::Communicator& comm) {
  Trainee trainee(bench.of_rank(comm));
  trainee.start_from(bench.weights);
  const parallel::PipelineStage& stage = *trainee.worker->stage;
  int64_t micro = stage.layout.request.microbatches, parts = bench.layout.data * bench.layout.accumulate;
  check_cut(bench, micro);
  auto [own, expected] = held(trainee, bench.reference);
  double lr = bench.options.worker.optimizer.lr;
  for (int64_t step = 0; step < bench.options.steps; ++step) {
    std::vector<int64_t> all = bench.samples(step);
    double loss = trainee.compute(*bench.dataset, share_of(all, stage.place.copy, bench.layout.data),
                                  bench.layout.accumulate);
    if (comm.rank() == 0) bench.note_loss(loss, bench.reference.compute(*bench.dataset, all, parts * micro));
    comm.barrier().wait();
    double gradient = relative_difference(gradients_of(own), gradients_of(expected));
    comm.barrier().wait();
    if (comm.rank() == 0) bench.reference.worker->strategy->commit({lr, false});
    trainee.worker->strategy->commit({lr, false});
    comm.barrier().wait();
    double parameter = relative_difference(own, expected);
    std::lock_guard lock(bench.mutex);
    bench.result.worst.gradient = std::max(bench.result.worst.gradient, gradient);
    bench.result.worst.parameter = std::max(bench.result.worst.parameter, parameter);
  }
}

void compare_ends(Bench& bench, const std::vector<optim::NamedTensor>& ours,
                  const std::vector<optim::NamedTensor>& expected) {
  std::map<std::string, torch::Tensor> by_name(ours.begin(), ours.end()), start;
  auto named = named_tensors(*bench.reference.worker->model.module);
  for (size_t i = 0; i < named.size(); ++i) start[named[i].first] = bench.weights[i];
  Tensors ends, moves, expected_ends, expected_moves;
  for (const auto& [name, tensor] : expected) {
    ends.push_back(by_name.at(name));
    expected_ends.push_back(tensor);
    moves.push_back((ends.back() - start.at(name)) / bench.options.worker.optimizer.lr);
    expected_moves.push_back((tensor - start.at(name)) / bench.options.worker.optimizer.lr);
  }
  bench.result.worst.parameter = relative_difference(ends, expected_ends);
  bench.result.worst.gradient = relative_difference(moves, expected_moves);
}

void train_beside_replay(Bench& bench, comm::Communicator& comm) {
  Trainee trainee(bench.of_rank(comm));
  trainee.start_from(bench.weights);
  parallel::Strategy& strategy = *trainee.worker->strategy;
  const parallel::PipelineLayout& layout = trainee.worker->stage->layout;
  check_cut(bench, layout.request.microbatches);
  double lr = bench.options.worker.optimizer.lr;
  std::vector<torch::Tensor> losses;
  for (int64_t step = 0; step < bench.options.steps; ++step) {
    data::Batch batch = bench.dataset->gather(bench.samples(step));
    strategy.acquire();
    torch::Tensor loss = strategy.compute(batch.inputs, batch.target, {1.0, true, lr}).loss;
    losses.push_back(strategy.agree({loss, 0}).loss);
    strategy.commit({lr, false});
  }
  strategy.drain();
  strategy.settle();
  std::vector<optim::NamedTensor> ours = parallel::gather_model(*trainee.worker->stage);
  if (comm.rank() != 0) return;
  parallel::StaleReplay replay(bench.reference.worker->model, layout, bench.options.worker.optimizer);
  for (int64_t step = 0; step < bench.options.steps; ++step) {
    data::Batch batch = bench.dataset->gather(bench.samples(step));
    for (torch::Tensor& input : batch.inputs) input = bench.reference.worker->place(input);
    bench.note_loss(losses[static_cast<size_t>(step)].item<double>(),
                    replay.step(batch.inputs, batch.target, lr));
  }
  compare_ends(bench, ours, replay.weights());
}

}  // namespace

Verification verify_pipeline(const VerifyOptions& options, const Layout& layout) {
  bool flushes = plan::flushes(plan::parse_schedule_kind(layout.schedule.schedule));
  if (!flushes && (layout.data > 1 || layout.accumulate > 1))
    throw ConfigError("layout '{}': {} is verified with data=1 and accumulate=1.", layout.text,
                      layout.schedule.schedule);
  Bench bench(options, layout);
  comm::run_ranks(static_cast<int>(layout.ranks()), [&](comm::Communicator& comm) {
    flushes ? train_beside_one_device(bench, comm) : train_beside_replay(bench, comm);
  });
  return std::move(bench.result);
}

}  // namespace yoke::engine
