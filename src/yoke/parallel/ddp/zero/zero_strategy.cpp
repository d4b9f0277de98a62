#include "yoke/parallel/ddp/zero/zero_strategy.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include "yoke/base/error.h"
#include "yoke/comm/tensors/tensors.h"
#include "yoke/optim/clip.h"
#include "yoke/optim/finite.h"
#include "yoke/parallel/ddp/zero/scatter_hook.h"
#include "yoke/parallel/ddp/zero/window_hook.h"

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

std::shared_ptr<ShardHook> make_shard_hook(const Shards& shards, const DdpOptions& ddp, int64_t stage) {
  if (stage == 1) return std::make_shared<ScatterHook>();
  if (stage == 2) return std::make_shared<WindowHook>(window_bytes(shards, ddp));
  throw ConfigError("ZeRO stage {}: accepted are 1 (the optimizer's state is sharded) and 2 (gradients too).",
                    stage);
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
      scaler_(scaler),
      shards_(shards),
      hook_(make_shard_hook(shards, ddp, stage)),
      clip_norm_(options.clip_norm),
      keeps_no_gradients_(stage == 2) {
  for (const auto& [name, tensor] : shards.owned()) owned_.push_back(tensor);
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
  for (size_t i = 0; i < shards_.pieces().size(); ++i)
    owned_[i].mutable_grad() = own_gradient(shards_.pieces()[i]);
}

// Whether everybody's gradients are finite.
bool ZeroStrategy::unscale() {
  bool here = scaler_.unscale(owned_);
  if (!loss_scale()) return here;
  torch::Tensor bad = torch::tensor({here ? 0 : 1}, torch::kInt32).to(owned_[0].device());
  comm::all_reduce(comm(), bad, ReduceOp::kMax, "gradients that are not finite");
  bool all = bad.item<int32_t>() == 0;
  scaler_.set_found_inf(!all);
  return all;
}

torch::Tensor ZeroStrategy::norm_over_ranks() {
  torch::Tensor square = optim::clip_grad_norm(owned_, 0).to(torch::kFloat64).square().reshape({1});
  comm::all_reduce(comm(), square, ReduceOp::kSum, "norm of the gradients");
  return square[0].sqrt();
}

CommitResult ZeroStrategy::commit(const CommitOptions& commit) {
  torch::NoGradGuard no_grad;
  take_gradients();
  CommitResult result;
  bool finite = unscale();
  if (finite && (clip_norm_ > 0 || commit.measure_norm)) {
    torch::Tensor norm = norm_over_ranks();
    if (clip_norm_ > 0) optim::scale_gradients(owned_, (clip_norm_ / (norm + 1e-6)).clamp_max(1.0));
    if (commit.measure_norm) {
      result.grad_norm = norm.item<double>();
      finite = std::isfinite(*result.grad_norm);
    }
  }
  if (finite) {
    optimizer_.step(commit.lr);
    shards_.begin_gather();
  }
  scaler_.update();
  result.updated = finite;
  return result;
}

std::vector<torch::Tensor> ZeroStrategy::gradients() {
  if (comm().size() == 1) return device().gradients();
  if (!hook_->part(0).defined()) return {};
  take_gradients();
  std::vector<torch::Tensor> parts;
  for (size_t b = 0; b < shards_.layout().plan.size(); ++b) parts.push_back(hook_->part(b));
  return shards_.assemble(parts, 0);
}

// Every rank looks at what it owns; the first in the order of the model is named.
std::optional<std::string> ZeroStrategy::first_non_finite_gradient() {
  take_gradients();
  auto none = static_cast<int64_t>(shards_.parameters().size()), first = none;
  for (size_t i = 0; i < shards_.pieces().size(); ++i)
    if (optim::first_non_finite_gradient({{"", owned_[i]}}))
      first = std::min(first, static_cast<int64_t>(shards_.pieces()[i].parameter));
  torch::Tensor agreed = torch::tensor({first}, torch::kInt64).to(owned_[0].device());
  comm::all_reduce(comm(), agreed, ReduceOp::kMin, "first gradient that is not finite");
  first = agreed.item<int64_t>();
  if (first == none) return std::nullopt;
  return shards_.parameters()[static_cast<size_t>(first)].first;
}

}  // namespace yoke::parallel
