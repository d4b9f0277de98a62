#include "yoke/engine/verify_pipeline.h"

#include <algorithm>
#include <map>

#include "yoke/base/error.h"
#include "yoke/engine/run_state.h"
#include "yoke/parallel/pipeline/gather.h"
#include "yoke/parallel/pipeline/replay.h"
#include "yoke/plan/schedules/orders.h"

namespace yoke::engine {
namespace {

using Tensors = std::vector<torch::Tensor>;

// The parameters that the stage holds, here and on the one device.
struct Held {
  Held(const Trainee& trainee, VerifyBench& bench) {
    const parallel::PipelineStage& stage = *trainee.worker->stage;
    std::lock_guard lock(bench.mutex);
    for (size_t i = 0; i < trainee.parameters.size(); ++i) {
      if (!stage.tensors[i].held_by(stage.place.stage)) continue;
      own.push_back(trainee.parameters[i]);
      expected.push_back(bench.reference.parameters[i]);
      bench.compared[i] = 1;
    }
  }
  // A stage may be without parameters.
  static double apart(const Tensors& ours, const Tensors& theirs) {
    return theirs.empty() ? 0 : relative_difference(ours, theirs);
  }
  Tensors own, expected;
};

std::span<const int64_t> share_of(const std::vector<int64_t>& all, int64_t part, int64_t parts) {
  size_t each = all.size() / static_cast<size_t>(parts);
  return std::span<const int64_t>(all).subspan(each * static_cast<size_t>(part), each);
}

void check_cut(const VerifyBench& bench, int64_t micro_batches) {
  const VerifyOptions& options = bench.options;
  int64_t parts = options.copies() * options.parallel.accumulate * micro_batches;
  if (options.alone.batch_size % parts != 0)
    throw ConfigError("layout '{}': a batch of {} cannot be cut into {} equal parts. Set data.batch_size.",
                      options.layout, options.alone.batch_size, parts);
}

void train_beside_one_device(VerifyBench& bench, comm::Communicator& comm, Trainee& trainee) {
  const parallel::PipelineStage& stage = *trainee.worker->stage;
  int64_t micro = stage.layout.request.microbatches, accumulate = bench.options.parallel.accumulate;
  int64_t copies = bench.options.copies();
  Held held(trainee, bench);
  for (int64_t step = 0; step < bench.options.steps; ++step) {
    std::vector<int64_t> all = bench.samples(step);
    Differences found;
    double loss = trainee.compute(*bench.dataset, share_of(all, stage.place.copy, copies), accumulate);
    if (comm.rank() == 0) bench.compute_reference(step, loss, copies * accumulate * micro);
    comm.barrier().wait();
    found.loss = relative_difference(loss, bench.expected_loss);
    found.gradient = Held::apart(gradients_of(held.own), gradients_of(held.expected));
    comm.barrier().wait();
    if (comm.rank() == 0) bench.commit_reference();
    trainee.worker->strategy->commit({bench.lr(), false});
    comm.barrier().wait();
    found.parameter = Held::apart(held.own, held.expected);
    bench.note(found);
  }
  bool all = std::all_of(bench.compared.begin(), bench.compared.end(), [](char one) { return one != 0; });
  if (!all) bench.note({0, 0, kInfinitelyApart});
}

void compare_ends(VerifyBench& bench, const std::vector<optim::NamedTensor>& ours,
                  const std::vector<optim::NamedTensor>& expected) {
  std::map<std::string, torch::Tensor> by_name(ours.begin(), ours.end()), start;
  auto named = named_tensors(*bench.reference.worker->model.module);
  for (size_t i = 0; i < named.size(); ++i) start[named[i].first] = bench.weights[i];
  Tensors ends, moves, expected_ends, expected_moves;
  for (const auto& [name, tensor] : expected) {
    ends.push_back(by_name[name]);  // undefined where nobody has it
    expected_ends.push_back(tensor);
    moves.push_back(ends.back().defined() ? (ends.back() - start.at(name)) / bench.lr() : ends.back());
    expected_moves.push_back((tensor - start.at(name)) / bench.lr());
  }
  bench.note({0, relative_difference(moves, expected_moves), relative_difference(ends, expected_ends)});
}

void train_beside_replay(VerifyBench& bench, comm::Communicator& comm, Trainee& trainee) {
  parallel::Strategy& strategy = *trainee.worker->strategy;
  const parallel::PipelineLayout& layout = trainee.worker->stage->layout;
  std::vector<torch::Tensor> losses;
  for (int64_t step = 0; step < bench.options.steps; ++step) {
    data::Batch batch = bench.dataset->gather(bench.samples(step));
    strategy.acquire();
    torch::Tensor loss = strategy.compute(batch.inputs, batch.target, {1.0, true, bench.lr()}).loss;
    losses.push_back(strategy.agree({loss, 0}).loss);
    strategy.commit({bench.lr(), false});
  }
  strategy.drain();
  strategy.settle();
  std::vector<optim::NamedTensor> ours = parallel::gather_model(*trainee.worker->stage);
  if (comm.rank() != 0) return;
  parallel::StaleReplay replay(bench.reference.worker->model, layout, bench.options.alone.optimizer);
  for (int64_t step = 0; step < bench.options.steps; ++step) {
    data::Batch batch = bench.dataset->gather(bench.samples(step));
    for (torch::Tensor& input : batch.inputs) input = bench.reference.worker->place(input);
    double loss = losses[static_cast<size_t>(step)].item<double>();
    double expected = replay.step(batch.inputs, batch.target, bench.lr());
    bench.result.loss.push_back(loss);
    bench.result.reference_loss.push_back(expected);
    bench.note({relative_difference(loss, expected), 0, 0});
  }
  compare_ends(bench, ours, replay.weights());
}

}  // namespace

void train_stage(VerifyBench& bench, comm::Communicator& comm) {
  Trainee trainee = bench.trainee(comm.rank(), on_ranks(bench.options.parallel, comm));
  const plan::ScheduleRequest& request = trainee.worker->stage->layout.request;
  check_cut(bench, request.microbatches);
  if (plan::flushes(request.kind)) return train_beside_one_device(bench, comm, trainee);
  if (bench.options.copies() > 1 || bench.options.parallel.accumulate > 1)
    throw ConfigError("layout '{}': {} is verified with data=1 and accumulate=1.", bench.options.layout,
                      plan::to_string(request.kind));
  train_beside_replay(bench, comm, trainee);
}

}  // namespace yoke::engine
