#include "yoke/parallel/sync/average/average_strategy.h"

#include <torch/utils.h>

#include <algorithm>
#include <utility>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/comm/tensors/tensors.h"
#include "yoke/parallel/average_checks.h"
#include "yoke/parallel/common/ddp/same_model.h"
#include "yoke/plan/averaging/graph.h"

namespace yoke::parallel {
namespace {

// Steps after which a signal to stop is known everywhere at the latest.
constexpr int64_t kStopEvery = 16;

std::unique_ptr<Combiner> make_combiner(const AverageOptions& options, const DdpOptions& ddp,
                                        comm::Communicator& comm) {
  if (options.method == "gossip") return make_gossip_combiner(options, comm);
  return make_mean_combiner(options, ddp.hook);
}

}  // namespace

AverageStrategy::AverageStrategy(const models::Model& model, optim::Optimizer& optimizer,
                                 optim::GradScaler& scaler, OneDeviceOptions options,
                                 comm::Communicator& comm, const AverageOptions& average,
                                 const DdpOptions& ddp)
    : Replica(model, optimizer, scaler, options, comm),
      model_(model),
      optimizer_(optimizer),
      options_(average),
      ddp_options_(ddp),
      rounds_(rounds_of(average)),
      give_up_(comm),
      buffers_(distinct_buffers(*model.module)),
      combiner_(make_combiner(average, ddp, comm)),
      news_(comm, options.device),
      lockstep_(rounds_.every == 1 && rounds_.overlap == 0 && !rounds_.never && combiner_->agrees()) {
  NamedTensors parameters = distinct_parameters(*model.module);
  check_same_model(parameters, buffers_, comm);
  give_values(parameters, comm, 0);
  give_values(buffers_, comm, 0);
  fragments_ =
      cut_into_fragments(averaged_parameters(parameters, optimizer.state()), average.fragments, comm);
  for (Fragment& one : fragments_) {
    for (const Averaged& tensor : one.tensors)
      if (!tensor.value.is_same(tensor.parameter)) tensor.value.copy_(tensor.parameter);
    one.sent = torch::zeros_like(one.bucket.flat);
    combiner_->prepare(one);
  }
  ddp_options_.init_sync = false;
  if (average.method != "async_gossip") return;
  if (!options.device.is_cpu())
    throw ConfigError(
        "average.method = \"async_gossip\" with train.device = \"{}\": pairs average in host memory. Use "
        "gossip, "
        "or train.device = \"cpu\".",
        options.device.str());
  pairs_.emplace(comm, plan::mixing_graph(average.graph, comm.size()), fragments_[0].bucket.flat);
}

AverageStrategy::~AverageStrategy() {
  auto done = [&](const Fragment& one) { return !one.in_flight || combiner_->done(one); };
  give_up_.before_wait([&] { return std::ranges::all_of(fragments_, done); }, "a round of averaging");
  for (Fragment& one : fragments_) {
    try {
      if (one.in_flight) combiner_->finish(one);
    } catch (const std::exception&) {  // whoever needs it hears of it
    }
  }
}

void AverageStrategy::acquire() {
  talk_ = {};
  if (std::exchange(shown_, false))
    for (size_t i = 0; i < own_.size(); ++i) fragments_[i].scatter(own_[i]);
  own_.clear();
  if (averages_gradients() && !ddp_) ddp_.emplace(*model_.module, comm(), ddp_options_);
  if (!averages_gradients() && ddp_) {
    ddp_.reset();
    anchored_ = false;
  }
  if (!std::exchange(anchored_, true)) {
    for (Fragment& one : fragments_)
      if (one.anchor.defined()) one.gather(one.anchor);
    if (pairs_) {
      fragments_[0].gather(fragments_[0].bucket.flat);
      pairs_->reset(fragments_[0].bucket.flat);
    }
  }
  if (pairs_) pairs_->resume();
  device().acquire();
}

ComputeResult AverageStrategy::compute(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target,
                                       const MicroBatch& micro) {
  ComputeResult result;
  if (!ddp_) {
    result = device().compute(inputs, target, micro);
  } else {
    compute::GradientHomes::Use homes(ddp_->gradient_homes());
    std::optional<DistributedDataParallel::NoSync> local;
    if (!micro.last) local.emplace(ddp_->no_sync());
    result = device().compute(inputs, target, micro);
  }
  if (!micro.last) return result;
  ++steps_;
  told_ = false;
  if (ddp_) talk_ = {ddp_->last_step().comm_seconds, ddp_->last_step().exposed_seconds, {}};
  return result;
}

StepNews AverageStrategy::agree(const StepNews& here) {
  const bool again = std::exchange(told_, true);  // the run ends
  if (pairs_) return {here.loss, pairs_->agree_to_stop(steps_, again ? 0 : here.stop_signal)};
  return news_.tell(here, lockstep_ || again || steps_ % kStopEvery == 0);
}

CommitResult AverageStrategy::commit(const CommitOptions& options) {
  CommitResult result = device().commit(options);
  stale_ = true;
  if (ddp_) return result;
  alone_ = true;
  equal_ = false;
  if (pairs_) meet(steps_ % options_.every == 0);
  if (auto fragment = rounds_.ends(steps_); fragment && rounds_.overlap > 0)
    end_round(fragments_[static_cast<size_t>(*fragment)]);
  if (auto fragment = rounds_.begins(steps_)) {
    begin_round(fragments_[static_cast<size_t>(*fragment)]);
    if (rounds_.overlap == 0) end_round(fragments_[static_cast<size_t>(*fragment)]);
  }
  return result;
}

void AverageStrategy::meet(bool asks) {
  Fragment& all = fragments_[0];
  all.gather(all.bucket.flat);
  pairs_->meet(all.bucket.flat, asks);
  all.scatter(all.bucket.flat);
}

void AverageStrategy::begin_round(Fragment& fragment) {
  torch::NoGradGuard no_grad;
  fragment.gather(fragment.sent);
  fragment.in_flight = true;
  combiner_->begin(fragment);
}

// Steps that were taken while the round was in flight are kept.
void AverageStrategy::end_round(Fragment& fragment) {
  if (!std::exchange(fragment.in_flight, false)) return;
  torch::NoGradGuard no_grad;
  Stopwatch watch;
  combiner_->finish(fragment);
  const double waited = watch.seconds();
  const comm::Pending::Timing timing = fragment.bucket.pending.timing();
  talk_.exposed += waited;
  talk_.seconds += std::max(waited, timing.ended - timing.started);
  if (rounds_.overlap == 0)
    fragment.scatter(fragment.bucket.flat);
  else
    fragment.add(fragment.bucket.flat.sub_(fragment.sent));
  equal_ = combiner_->agrees() && fragments_.size() == 1 && rounds_.overlap == 0;
}

void AverageStrategy::drain() {
  if (!stale_ || shown_) return;
  for (Fragment& one : fragments_) end_round(one);
  if (pairs_) {
    pairs_->pause();
    comm().barrier({.name = "pairs are paused"}).wait();
    meet(/*asks=*/false);  // what the last pairs made of them
  }
  average_parameters();
  average_buffers();
  shown_ = true;
}

void AverageStrategy::average_parameters() {
  if (equal_) return;
  torch::NoGradGuard no_grad;
  for (Fragment& one : fragments_) {
    own_.push_back(torch::empty_like(one.bucket.flat));
    one.gather(own_.back());
    one.bucket.flat.copy_(own_.back());
    comm::all_reduce(comm(), one.bucket.flat, ReduceOp::kMean, "average of all replicas");
    one.scatter(one.bucket.flat);
  }
}

void AverageStrategy::average_buffers() {
  torch::NoGradGuard no_grad;
  for (const auto& [name, buffer] : buffers_)
    if (buffer.is_floating_point() && buffer.numel() > 0)
      comm::all_reduce(comm(), buffer, ReduceOp::kMean, name);
}

// Counts of steps are rank 0's: a replica may have skipped one.
void AverageStrategy::average_optimizer() {
  torch::NoGradGuard no_grad;
  NamedTensors counts;
  for (const auto& [name, tensor] : optimizer_.state()) {
    if (name.starts_with("master/") || tensor.numel() == 0) continue;
    if (!tensor.is_floating_point() || name.find('/') == std::string::npos)
      counts.emplace_back(name, tensor);
    else
      comm::all_reduce(comm(), tensor, ReduceOp::kMean, name);
  }
  give_values(counts, comm(), 0);
}

Traffic AverageStrategy::traffic() const {
  Traffic all = Replica::traffic();
  all.data += news_.bytes_sent() + (pairs_ ? pairs_->bytes_sent() : 0);
  return all;
}

std::vector<StatePiece> AverageStrategy::gradients() {
  std::vector<StatePiece> pieces = Replica::gradients();
  if (ddp_) return pieces;
  for (StatePiece& one : pieces) {
    if (!one.values.defined()) continue;
    torch::Tensor dense = one.values.is_sparse() ? one.values.to_dense() : one.values;
    one.values = dense.detach().clone();
    comm::all_reduce(comm(), one.values, ReduceOp::kMean, one.name);
  }
  return pieces;
}

std::vector<StatePiece> AverageStrategy::state() {
  drain();
  if (std::exchange(alone_, false)) average_optimizer();
  stale_ = false;
  own_.clear();  // all continue from the average
  equal_ = true;
  anchored_ = false;  // the caller may write into it
  std::vector<StatePiece> all = Replica::state();
  NamedTensors outer;
  for (const Fragment& one : fragments_)
    for (size_t i = 0; one.momentum.defined() && i < one.tensors.size(); ++i)
      outer.emplace_back("outer_momentum/" + one.tensors[i].name, one.part(one.momentum, i));
  for (StatePiece& piece : whole_state({}, {}, outer, comm().rank(), comm().size()))
    all.push_back(std::move(piece));
  return all;
}

}  // namespace yoke::parallel
