#include "yoke/engine/verify.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>

#include "yoke/base/error.h"
#include "yoke/comm/run_ranks.h"
#include "yoke/engine/speed_split.h"
#include "yoke/engine/state_pieces.h"
#include "yoke/engine/verify_trainee.h"
#include "yoke/parallel/membership.h"
#include "yoke/parallel/mesh.h"

namespace yoke::engine {
namespace {

using Pieces = std::vector<parallel::StatePiece>;

// The other ranks wait while the first computes the reference step.
constexpr double kTimeout = 600;

void check_cut(const VerifyOptions& options, int64_t parts) {
  if (options.alone.batch_size % parts != 0)
    throw ConfigError("layout '{}': a batch of {} cannot be cut into {} equal parts. Set data.batch_size.",
                      options.layout, options.alone.batch_size, parts);
}

// The samples of each step that this rank computes.
std::unique_ptr<data::Sampler> own_samples(const VerifyBench& bench, const parallel::DataShare& share) {
  data::DataOptions part = bench.options.data;
  part.batch_size = bench.options.alone.batch_size / share.parts;
  auto own = std::make_unique<data::Sampler>(bench.dataset->size(), part,
                                             static_cast<uint64_t>(bench.options.alone.seed),
                                             data::Shard{share.part, share.parts});
  own->set_shares(parse_split(bench.options.parallel.parallel.split, static_cast<int>(share.parts)));
  return own;
}

// The samples of a step in the order in which all replicas together process them, so that one device computes
// BatchNorm over the same samples as replicas that share their statistics.
std::vector<int64_t> samples_by_pass(const VerifyBench& bench, parallel::DataShare share, int64_t passes,
                                     int64_t step) {
  std::vector<std::vector<int64_t>> parts;
  for (share.part = 0; share.part < share.parts; ++share.part)
    parts.push_back(own_samples(bench, share)->indices(step));
  // Unequal shares may have passes of unequal sizes: no cut of the reference is the same.
  const bool equal = std::ranges::all_of(
      parts, [&](const auto& part) { return static_cast<int64_t>(part.size()) % passes == 0; });
  if (!equal) return bench.samples(step);
  std::vector<int64_t> ordered;
  for (int64_t pass = 0; pass < passes; ++pass)
    for (const std::vector<int64_t>& part : parts) {
      const auto each = static_cast<int64_t>(part.size()) / passes;
      ordered.insert(ordered.end(), part.begin() + pass * each, part.begin() + (pass + 1) * each);
    }
  return ordered;
}

// Losses and gradients of replicas that are not in lockstep: their means are compared.
class Means {
 public:
  explicit Means(int ranks) : losses_(static_cast<size_t>(ranks)), gradients_(losses_.size()) {}

  void give(int rank, double loss, const Pieces& gradients) {
    const auto own = static_cast<size_t>(rank);
    losses_[own] = loss;
    gradients_[own] = gradients;
    for (parallel::StatePiece& one : gradients_[own])
      if (one.values.defined()) one.values = one.values.detach().clone();
  }
  // Over the replicas of a part of the model, each on one of these ranks.
  double loss(const std::vector<int>& ranks) const {
    double sum = 0;
    for (int rank : ranks) sum += losses_[static_cast<size_t>(rank)];
    return sum / static_cast<double>(ranks.size());
  }
  // Undefined if a replica has none.
  Pieces gradients(const std::vector<int>& ranks) const {
    Pieces mean = gradients_[static_cast<size_t>(ranks[0])];
    for (size_t replica = 1; replica < ranks.size(); ++replica) {
      const Pieces& others = gradients_[static_cast<size_t>(ranks[replica])];
      if (others.size() != mean.size()) return {};
      for (size_t i = 0; i < mean.size(); ++i) {
        const torch::Tensor& other = others[i].values;
        torch::Tensor& sum = mean[i].values;
        sum = sum.defined() && other.defined() ? sum + other : torch::Tensor();
      }
    }
    for (parallel::StatePiece& one : mean)
      if (one.values.defined()) one.values = one.values / static_cast<double>(ranks.size());
    return mean;
  }

 private:
  std::vector<double> losses_;
  std::vector<Pieces> gradients_;
};

// The ranks that hold the same part of the model as this one.
std::vector<int> replicas_of_part(const VerifyOptions& options, int rank) {
  const parallel::ParallelOptions& axes = options.parallel.parallel;
  const parallel::Mesh mesh = parallel::fit_mesh(options.ranks, axes.pipeline, 0, axes.tensor);
  for (const std::vector<int>& group : parallel::groups_along(mesh, "data"))
    if (std::find(group.begin(), group.end(), rank) != group.end()) return group;
  return {rank};
}

// Counts what this rank compares: over all ranks each element of the model once.
// Parameters that are not trained have no gradients.
void note_compared(VerifyBench& bench, const Pieces& pieces, bool gradients) {
  std::lock_guard lock(bench.mutex);
  for (const parallel::StatePiece& piece : pieces) {
    if (piece.kind != parallel::StatePiece::Kind::kParameter || piece.holder < 0) continue;
    auto found = bench.parameters.find(piece.name);
    if (gradients && found != bench.parameters.end() && !found->second.requires_grad()) continue;
    const int64_t elements =
        piece.values.defined() ? piece.values.numel() : c10::multiply_integers(piece.shape);
    bench.compared[piece.name] += static_cast<double>(elements) / piece.holders;
  }
}

// Whether gradients and parameters of every step were compared completely.
bool compared_all(const VerifyBench& bench) {
  constexpr double kRounding = 1e-6;
  for (const auto& [name, parameter] : bench.parameters) {
    auto found = bench.compared.find(name);
    const int64_t times = parameter.requires_grad() ? 2 : 1;
    const auto expected = static_cast<double>(times * bench.options.steps * parameter.numel());
    if (found == bench.compared.end() || std::abs(found->second / expected - 1) > kRounding) return false;
  }
  return bench.compared.size() == bench.parameters.size();
}

void train_beside_one_device(VerifyBench& bench, comm::Communicator& comm, Trainee& trainee, Means& means) {
  const VerifyOptions& options = bench.options;
  parallel::Strategy& strategy = *trainee.worker->strategy;
  const parallel::DataShare share = strategy.share();
  const bool alone = strategy.progress() && share.parts > 1;
  const std::vector<int> replicas =
      alone ? replicas_of_part(options, comm.rank()) : std::vector<int>{comm.rank()};
  const int64_t accumulate = options.parallel.accumulate;
  const int64_t passes = share.together ? accumulate * share.passes : 1;
  check_cut(options, share.parts * accumulate * share.passes);
  std::unique_ptr<data::Sampler> samples = own_samples(bench, share);
  const data::Sampler& own = *samples;
  for (int64_t step = 0; step < options.steps; ++step) {
    Differences found;
    double loss =
        trainee.compute(*bench.dataset, own.indices(step), accumulate, own.weight_at(own.after({}, step)));
    Pieces gradients = strategy.gradients();
    if (alone) means.give(comm.rank(), loss, gradients);
    comm.barrier().wait();
    if (alone) loss = means.loss(replicas);
    if (alone) gradients = means.gradients(replicas);
    if (alone && share.part != 0)
      for (parallel::StatePiece& one : gradients) one.holder = -1;  // counted by the first
    if (comm.rank() == 0) bench.compute_reference(samples_by_pass(bench, share, passes, step), loss, passes);
    comm.barrier().wait();
    found.loss = relative_difference(loss, bench.expected_loss);
    found.gradient = bench.apart(gradients, /*gradients=*/true);
    note_compared(bench, gradients, /*gradients=*/true);
    comm.barrier().wait();
    if (comm.rank() == 0) bench.commit_reference();
    strategy.commit({bench.lr(), false});
    strategy.drain();
    comm.barrier().wait();
    Pieces state = strategy.state();
    found.parameter = bench.apart(state, /*gradients=*/false);
    note_compared(bench, state, /*gradients=*/false);
    bench.note(found);
  }
}

void compare_ends(VerifyBench& bench, const std::vector<optim::NamedTensor>& ours,
                  const parallel::NamedTensors& expected) {
  std::map<std::string, torch::Tensor> by_name(ours.begin(), ours.end());
  std::vector<torch::Tensor> ends, moves, expected_ends, expected_moves;
  for (const auto& [name, tensor] : expected) {
    ends.push_back(by_name[name]);  // undefined if nobody has it
    expected_ends.push_back(tensor);
    moves.push_back(ends.back().defined() ? (ends.back() - bench.weights.at(name)) / bench.lr()
                                          : ends.back());
    expected_moves.push_back((tensor - bench.weights.at(name)) / bench.lr());
  }
  bench.note({0, relative_difference(moves, expected_moves), relative_difference(ends, expected_ends)});
}

void train_beside_replay(VerifyBench& bench, comm::Communicator& comm, Trainee& trainee,
                         parallel::Replay& replay) {
  parallel::Strategy& strategy = *trainee.worker->strategy;
  const parallel::DataShare share = strategy.share();
  if (share.parts > 1 || bench.options.parallel.accumulate > 1)
    throw ConfigError("layout '{}': schedules without a flush are verified with data=1 and accumulate=1.",
                      bench.options.layout);
  check_cut(bench.options, share.passes);
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
  std::vector<optim::NamedTensor> ours = whole_model(*trainee.worker);
  if (comm.rank() != 0) return;
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

// True: compared with a replay.
bool train_rank(VerifyBench& bench, comm::Communicator& comm, const parallel::LocalJob& job, Means& means) {
  WorkerOptions own = on_ranks(bench.options.parallel, comm);
  own.links.messenger = job.messenger(comm.rank());
  const std::unique_ptr<comm::Communicator> replicas = job.world(comm.rank());
  if (replicas != nullptr) own.links.world = replicas.get();
  if (own.links.messenger != nullptr && !own.holds_part() && !own.sync_batchnorm) own.links.world = nullptr;
  Trainee trainee = bench.trainee(comm.rank(), own);
  auto replay =
      trainee.worker->strategy->replay(bench.reference.worker->model, bench.options.alone.optimizer);
  if (replay)
    train_beside_replay(bench, comm, trainee, *replay);
  else
    train_beside_one_device(bench, comm, trainee, means);
  return replay != nullptr;
}

}  // namespace

double Differences::largest() const {
  return std::max({loss, gradient, parameter});
}

Verification verify(const VerifyOptions& options) {
  VerifyBench bench(options);
  Means means(options.ranks);
  parallel::LocalJob job(options.parallel, options.alone.optimizer, options.ranks);
  std::atomic<bool> replayed = false;
  auto train = [&](comm::Communicator& comm) {
    if (train_rank(bench, comm, job, means)) replayed = true;
  };
  comm::run_ranks(options.ranks, train, kTimeout);
  job.finish();
  if (!replayed && !compared_all(bench)) bench.note({0, 0, kInfinitelyApart});
  return std::move(bench.result);
}

}  // namespace yoke::engine
