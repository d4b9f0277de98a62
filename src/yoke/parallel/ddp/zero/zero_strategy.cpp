#include "yoke/parallel/ddp/zero/zero_strategy.h"

#include <cmath>

#include "yoke/comm/tensors/tensors.h"
#include "yoke/optim/clip.h"
#include "yoke/optim/finite.h"

namespace yoke::parallel {
namespace {

// Memory for gradients under way: one bucket fills, one travels, one is on its way out.
constexpr size_t kBlocks = 3;

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
      hook_(std::make_shared<ScatterHook>(stage == 2)),
      clip_norm_(options.clip_norm),
      keeps_no_gradients_(stage == 2) {
  for (const auto& [name, tensor] : shards.owned()) owned_.push_back(tensor);
  BucketLayout layout = shards.layout();
  layout.blocks = keeps_no_gradients_ ? kBlocks : 0;
  this->ddp().set_layout(std::move(layout));
  this->ddp().set_hook(hook_);
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

void ZeroStrategy::take_gradients() {
  for (size_t i = 0; i < shards_.pieces().size(); ++i) {
    const Piece& piece = shards_.pieces()[i];
    owned_[i].mutable_grad() = hook_->part(piece.bucket).narrow(0, piece.offset, piece.end - piece.begin);
  }
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
