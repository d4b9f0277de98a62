#include "yoke/parallel/common/gradient_exchange.h"

#include <torch/utils.h>

#include <algorithm>
#include <cmath>

#include "yoke/base/clock.h"
#include "yoke/comm/tensors/tensors.h"
#include "yoke/optim/clip.h"
#include "yoke/parallel/common/ddp/all_reduce_hook.h"
#include "yoke/parallel/common/ddp/buckets.h"
#include "yoke/parallel/sync/sharded/scatter_hook.h"

namespace yoke::parallel {
namespace {

constexpr int64_t kMessageBytes = 25 << 20;

}  // namespace

GradientExchange::GradientExchange(comm::Communicator& world, const PipelineLayout& layout,
                                   const std::vector<OwnedTensor>& tensors, SliceAxis slices,
                                   PartShards shards, const std::string& hook)
    : world_(world),
      slices_(std::move(slices)),
      shards_(shards),
      give_up_(world),
      as_is_(std::make_shared<AllReduceHook>()),
      hook_(make_hook(hook)),
      narrow_type_(cast_of_hook(hook)) {
  if (!hook_) hook_ = as_is_;
  PipelinePlace place = layout.place_of(world.rank());
  first_of_stage_ = place.replica == 0 && place.copy == 0;
  std::set<std::vector<int>> holders;  // sets of stages, in the same order on all ranks
  for (int stage = 0; stage < layout.request.stages; ++stage) holders.insert({stage});
  for (const OwnedTensor& one : tensors)
    if (one.is_trained()) holders.insert(one.stages);
  for (const std::vector<int>& stages : holders) {
    ties_ = ties_ || stages.size() > 1;
    bool here = std::find(stages.begin(), stages.end(), place.stage) != stages.end();
    int ranks = 0;
    for (int stage : stages) ranks += layout.request.replicas_of(stage) * layout.copies;
    Group group;
    group.tied = stages.size() > 1;
    group.parameters.resize(static_cast<size_t>(layout.request.chunks));
    if (ranks > 1 && (group.tied || !shards_)) {
      std::string name = stages.size() > 1 ? "tied" : fmt::format("stage {}", stages[0]);
      // Replica by replica where gradients are in pieces: each sums those it owns.
      const int color = shards_.fully != nullptr ? place.copy : 0;
      group.comm = world.split(here ? color : -1, world.rank(), name);
    }
    for (const OwnedTensor& one : tensors)
      if (here && one.is_trained() && one.stages == stages)
        for (const torch::Tensor& part : parts_of(one.tensor))
          group.parameters[group.tied ? 0 : static_cast<size_t>(one.chunk)].push_back(part);
    if (here) groups_.push_back(std::move(group));
  }
  // The other stage of a tied weight may come much later: sums within the stage go first.
  std::stable_partition(groups_.begin(), groups_.end(), [](const Group& group) { return !group.tied; });
  std::set<const void*> countable;
  for (const OwnedTensor& one : tensors) {
    if (!one.is_trained() || !one.held_by(place.stage)) continue;
    if (one.is_tied()) tied_.insert(one.tensor.unsafeGetTensorImpl());
    if (one.stages[0] == place.stage && (!slices_ || slices_.counts(one.tensor)))
      countable.insert(one.tensor.unsafeGetTensorImpl());
    if (shards_) continue;
    parameters_.push_back(one.tensor);
    if (first_of_stage_ && countable.contains(one.tensor.unsafeGetTensorImpl()))
      counted_.push_back(one.tensor);
  }
  if (!shards_) return;
  shard_hook_ = make_shard_hook(hook);
  const PieceSource source = shards_.source();
  for (const auto& [name, piece] : source.owned) parameters_.push_back(piece);
  for (size_t i = 0; i < source.pieces.size(); ++i) {
    const torch::Tensor& parameter = source.parameters[source.pieces[i].parameter].second;
    if (countable.contains(parameter.unsafeGetTensorImpl())) counted_.push_back(parameters_[i]);
  }
}

// What this rank has of the gradient of a tied weight: the whole, or the pieces it owns.
std::vector<torch::Tensor> GradientExchange::parts_of(const torch::Tensor& parameter) const {
  if (shards_.fully == nullptr) return {parameter};
  const PieceSource source = shards_.source();
  std::vector<torch::Tensor> own;
  for (size_t i = 0; i < source.pieces.size(); ++i)
    if (source.parameters[source.pieces[i].parameter].second.is_same(parameter))
      own.push_back(source.owned[i].second);
  return own;
}

GradientExchange::~GradientExchange() {
  auto done = [](const Message& one) { return one.bucket.pending.done(); };
  give_up_.before_wait([&] { return std::ranges::all_of(moving_, done); }, "a pipeline step");
  for (const Message& one : moving_) {
    try {
      one.bucket.pending.wait();
    } catch (const std::exception&) {  // already reported to whoever waited for it
    }
  }
}

void GradientExchange::begin(int chunk) {
  if (shards_) return;  // pieces of a bucket belong to several chunks
  if (!begun_.insert(chunk).second) return;
  for (Group& group : groups_)
    if (!group.tied) send(group, static_cast<size_t>(chunk));
}

// All ranks start the remaining chunks in the same (descending) order, then tied groups: collectives of a
// communicator must be issued in the same order everywhere.
double GradientExchange::finish() {
  Stopwatch watch;
  torch::NoGradGuard no_grad;
  for (int chunk = static_cast<int>(groups_[0].parameters.size()) - 1; chunk >= 0; --chunk) begin(chunk);
  for (Group& group : groups_)
    if (group.tied) send(group, 0);
  finish_messages();
  if (shards_.shards != nullptr) scatter();
  begun_.clear();
  return watch.seconds();
}

// Phase by phase, all messages of one in the order they were sent, as hooks expect.
void GradientExchange::finish_messages() {
  auto moves = [](const Message& one) { return one.hook != nullptr; };
  for (int phase = 1; std::ranges::any_of(moving_, moves); ++phase)
    for (Message& one : moving_)
      if (moves(one) && !one.hook->advance(one.bucket, phase)) one.hook = nullptr;
  for (Message& one : moving_)
    for (size_t i = 0; i < one.gradients.size(); ++i) one.gradients[i].copy_(one.bucket.parts[i]);
  moving_.clear();
}

// Every rank gets the sums of its parts of the buckets; whole gradients are dropped.
void GradientExchange::scatter() {
  const auto& plan = shards_.shards->layout().plan;
  for (size_t bucket = 0; bucket < plan.size(); ++bucket) {
    Message& message = moving_.emplace_back();
    message.bucket = collect(bucket, plan[bucket]);
    message.hook = shard_hook_.get();
    if (!message.hook->advance(message.bucket, 0)) message.hook = nullptr;
  }
  finish_messages();
  std::vector<torch::Tensor> own;
  for (size_t bucket = 0; bucket < plan.size(); ++bucket)
    own.push_back(shard_hook_->part(bucket).to(shards_.shards->flat(bucket).scalar_type(),
                                               /*non_blocking=*/false,
                                               /*copy=*/true));
  shard_hook_->begin_step();
  for (size_t i = 0; i < shards_.shards->pieces().size(); ++i) {
    const Piece& piece = shards_.shards->pieces()[i];
    parameters_[i].mutable_grad() = own[piece.bucket].narrow(0, piece.offset, piece.end - piece.begin);
  }
}

GradientBucket GradientExchange::collect(size_t index, const std::vector<int64_t>& parameters) {
  const torch::Tensor& like = shards_.shards->flat(index);
  GradientBucket bucket;
  bucket.index = static_cast<int>(index);
  bucket.options = narrow_type_ ? like.options().dtype(*narrow_type_) : like.options();
  bucket.elements = like.numel();
  bucket.flat = torch::zeros({bucket.elements}, bucket.options);
  bucket.comm = &shards_.shards->comm();
  int64_t at = 0;
  for (int64_t one : parameters) {
    torch::Tensor parameter = shards_.shards->parameters()[static_cast<size_t>(one)].second;
    bucket.offsets.push_back(at);
    bucket.parts.push_back(place_in(bucket.flat, at, parameter));
    // Gradients of tied weights are already summed over all their ranks: they must count once.
    const bool counts = first_of_stage_ || !tied_.contains(parameter.unsafeGetTensorImpl());
    if (counts && parameter.grad().defined()) bucket.parts.back().copy_(parameter.grad());
    parameter.mutable_grad().reset();
    at += parameter.numel();
  }
  return bucket;
}

void GradientExchange::give_to_stage(const NamedTensors& tensors) const {
  comm::Communicator* stage = shards_ ? &shards_.source().comm : groups_[0].comm.get();
  if (stage != nullptr) give_values(tensors, *stage, 0);
}

void GradientExchange::clip_each(double max_norm) const {
  for (const Group& group : groups_) {
    std::vector<torch::Tensor> all;
    for (const auto& list : group.parameters) all.insert(all.end(), list.begin(), list.end());
    optim::clip_grad_norm(all, max_norm);
  }
}

void GradientExchange::send(Group& group, size_t chunk) {
  if (!group.comm) return;
  std::map<torch::ScalarType, std::vector<torch::Tensor>> waiting;
  std::map<torch::ScalarType, int64_t> bytes;
  size_t place = 0;
  for (torch::Tensor parameter : group.parameters[chunk]) {
    // A rank without a part in it contributes zeros.
    if (!parameter.grad().defined()) parameter.mutable_grad() = torch::zeros_like(parameter);
    torch::ScalarType type = parameter.scalar_type();
    waiting[type].push_back(parameter.grad());
    bytes[type] += static_cast<int64_t>(parameter.nbytes());
    if (bytes[type] < kMessageBytes) continue;
    send(group, {chunk, place++}, std::exchange(waiting[type], {}));
    bytes[type] = 0;
  }
  for (auto& [type, gradients] : waiting)
    if (!gradients.empty()) send(group, {chunk, place++}, std::move(gradients));
}

// Losses carry the weight of their replica, so gradients are summed: the divisor is 1.
void GradientExchange::send(Group& group, const MessageKey& key, std::vector<torch::Tensor> gradients) {
  torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> flat;
  for (const torch::Tensor& one : gradients) flat.push_back(one.reshape({-1}));
  Message& message = moving_.emplace_back();
  GradientBucket& bucket = message.bucket;
  bucket.index = group.numbers.try_emplace(key, static_cast<int>(group.numbers.size())).first->second;
  bucket.flat = at::cat(flat);
  bucket.elements = bucket.flat.numel();
  bucket.options = bucket.flat.options();
  bucket.comm = group.comm.get();
  int64_t at = 0;
  for (const torch::Tensor& one : gradients) {
    bucket.offsets.push_back(at);
    bucket.parts.push_back(bucket.flat.narrow(0, at, one.numel()).view(one.sizes()));
    at += one.numel();
  }
  message.gradients = std::move(gradients);
  message.hook = (group.tied ? as_is_ : hook_).get();
  if (!message.hook->advance(bucket, 0)) message.hook = nullptr;
}

int64_t GradientExchange::bytes_to_replicas() const {
  int64_t bytes = shards_ ? shards_.source().comm.counters().bytes_sent : 0;
  for (const Group& group : groups_)
    if (group.comm && !group.tied) bytes += group.comm->counters().bytes_sent;
  return bytes;
}

int64_t GradientExchange::bytes_to_stages() const {
  int64_t bytes = 0;
  for (const Group& group : groups_)
    if (group.comm && group.tied) bytes += group.comm->counters().bytes_sent;
  return bytes;
}

double GradientExchange::square() const {
  double norm = optim::clip_grad_norm(counted_, /*max_norm=*/0).item<double>();
  return norm * norm;
}

GradientExchange::Judgement GradientExchange::judge(bool overflow) const {
  torch::Tensor norm = optim::clip_grad_norm(counted_, /*max_norm=*/0).to(torch::kFloat64);
  torch::Tensor told = torch::tensor({0.0, overflow ? 1.0 : 0.0}, torch::kFloat64).to(norm.device());
  told[0] = norm * norm;
  if (!parameters_.empty()) told = told.to(parameters_[0].device());
  comm::all_reduce(world_, told, ReduceOp::kSum, "norm of the gradients");
  torch::Tensor host = told.cpu();
  const double* sums = host.const_data_ptr<double>();
  return {std::sqrt(sum_over(slices_, sums[0])), any_over(slices_, sums[1] > 0)};
}

}  // namespace yoke::parallel
