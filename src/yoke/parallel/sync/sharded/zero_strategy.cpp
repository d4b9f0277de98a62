#include "yoke/parallel/sync/sharded/zero_strategy.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "yoke/base/error.h"
#include "yoke/optim/averaging.h"
#include "yoke/parallel/registry.h"
#include "yoke/parallel/sync/sharded/scatter_hook.h"
#include "yoke/parallel/sync/sharded/sharded_state.h"

namespace yoke::parallel {
namespace {

// A window of stage 2. Smaller ones save memory, larger ones messages: each costs a round between the ranks.
constexpr int64_t kWantedWindow = 4 << 20;
constexpr int64_t kLeastWindow = 64 << 10;

int64_t window_bytes(const Shards& shards, const DdpOptions& ddp) {
  int64_t bytes = 0;
  for (const auto& [name, parameter] : shards.parameters()) bytes += static_cast<int64_t>(parameter.nbytes());
  const int64_t wanted = std::clamp(kWantedWindow, bytes / 32, bytes / 8);
  return std::max(kLeastWindow, std::min(wanted, ddp.bucket_bytes));
}

std::shared_ptr<ShardHook> hook_of(const Shards& shards, const DdpOptions& ddp, int64_t stage) {
  if (stage != 1 && stage != 2)
    throw ConfigError(
        "ZeRO stage {}: accepted are 1 (the optimizer's state is sharded) and 2 (gradients too).", stage);
  check_sharded_hook(ddp.hook, stage);
  if (stage == 1) return make_shard_hook(ddp.hook);
  return make_shard_hook(ddp.hook, window_bytes(shards, ddp));
}

// A block that is recomputed gives its parameters gradients of its own.
std::vector<int> uses_of(const Shards& shards, const models::Model& model) {
  std::unordered_map<const void*, int> blocks;
  for (const models::Block& block : model.blocks) {
    std::unordered_set<const void*> here;
    for (const auto& module : block.modules)
      for (const torch::Tensor& parameter : module->parameters())
        here.insert(parameter.unsafeGetTensorImpl());
    for (const void* parameter : here) ++blocks[parameter];
  }
  std::vector<int> uses;
  for (const auto& [name, parameter] : shards.parameters())
    uses.push_back(std::max(1, blocks[parameter.unsafeGetTensorImpl()]));
  return uses;
}

// Blocks of the model wait for their parameters.
OneDeviceOptions waiting_for(OneDeviceOptions options, const models::Model& model, Shards& shards) {
  std::vector<std::vector<size_t>> needs;
  for (const models::Block& block : model.blocks) needs.push_back(shards.buckets_of(block.modules));
  options.before_block = [needs = std::move(needs), &shards](size_t block) {
    for (size_t bucket : needs[block]) shards.wait(bucket);
  };
  return options;
}

// The shards have brought the ranks together.
DdpOptions without_start(DdpOptions options) {
  options.init_sync = false;
  return options;
}

}  // namespace

ZeroStrategy::ZeroStrategy(const models::Model& model, optim::Optimizer& optimizer, optim::GradScaler& scaler,
                           OneDeviceOptions options, comm::Communicator& comm, const DdpOptions& ddp,
                           Shards& shards, int64_t stage)
    : DdpStrategy(model, optimizer, scaler, waiting_for(options, model, shards), comm, without_start(ddp)),
      optimizer_(optimizer),
      shards_(shards),
      hook_(hook_of(shards, ddp, stage)),
      owned_(shards.source(), optimizer, scaler, options),
      keeps_no_gradients_(stage == 2) {
  this->ddp().set_hook(hook_);
  BucketLayout layout = shards.layout();
  layout.passing = keeps_no_gradients_;
  layout.uses = uses_of(shards, model);
  this->ddp().set_layout(std::move(layout));
}

void ZeroStrategy::acquire() {
  device().acquire();
  hook_->begin_step();
  for (const auto& [name, parameter] : shards_.parameters()) parameter.mutable_grad().reset();
}

ComputeResult ZeroStrategy::compute(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target,
                                    const MicroBatch& micro) {
  return DdpStrategy::compute(inputs, target, {micro.weight, micro.last || keeps_no_gradients_});
}

// Alone, backward() leaves gradients where it made them.
torch::Tensor ZeroStrategy::own_gradient(const Piece& piece) const {
  int64_t elements = piece.end - piece.begin;
  if (shards_.comm().size() > 1) {
    torch::Tensor part = hook_->part(piece.bucket);
    return part.defined() ? part.narrow(0, piece.offset, elements) : part;
  }
  const torch::Tensor& gradient = shards_.parameters()[piece.parameter].second.grad();
  if (!gradient.defined()) return gradient;
  return shards_.run_of(piece.parameter, gradient).narrow(0, piece.begin, elements);
}

void ZeroStrategy::take_gradients() {
  torch::NoGradGuard no_grad;
  for (size_t i = 0; i < shards_.pieces().size(); ++i) owned_.set(i, own_gradient(shards_.pieces()[i]));
}

CommitResult ZeroStrategy::commit(const CommitOptions& commit) {
  take_gradients();
  return owned_.commit(commit, [this] { shards_.begin_gather(); });
}

std::vector<StatePiece> ZeroStrategy::gradients() {
  take_gradients();
  return owned_.pieces();
}

// Where parameters lie in memory of all ranks, nobody may compute with them while they change.
bool ZeroStrategy::exchange_average() {
  shards_.wait_for_all();
  shards_.comm().barrier({.name = "moving average"}).wait();
  if (!optim::exchange_average(optimizer_)) return false;
  shards_.begin_gather();
  shards_.wait_for_all();
  return true;
}

std::vector<StatePiece> ZeroStrategy::state() {
  std::vector<StatePiece> pieces;
  for (StatePiece& one : DdpStrategy::state())
    if (one.kind != StatePiece::Kind::kOptimizer) pieces.push_back(std::move(one));
  for (StatePiece& one : sharded_state(shards_.source(), optimizer_.state()))
    pieces.push_back(std::move(one));
  return pieces;
}

std::vector<StatePiece> ZeroStrategy::shard() {
  const PieceSource source = shards_.source();
  std::vector<StatePiece> pieces;
  for (size_t i = 0; i < source.pieces.size(); ++i)
    pieces.push_back(piece_of(source, i, StatePiece::Kind::kParameter, source.owned[i].second.detach()));
  for (StatePiece& one : sharded_state(source, optimizer_.state())) pieces.push_back(std::move(one));
  return pieces;
}

std::optional<std::string> ZeroStrategy::first_non_finite_gradient() {
  take_gradients();
  return owned_.first_non_finite();
}

}  // namespace yoke::parallel
