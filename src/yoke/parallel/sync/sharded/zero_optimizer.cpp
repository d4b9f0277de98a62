#include "yoke/parallel/sync/sharded/zero_optimizer.h"

#include <torch/utils.h>

#include <utility>

#include "yoke/comm/tensors/tensors.h"
#include "yoke/optim/clip.h"
#include "yoke/parallel/sync/sharded/scatter_hook.h"
#include "yoke/parallel/sync/sharded/shards.h"

namespace yoke {

ZeroOptimizer::ZeroOptimizer(torch::nn::Module& module, comm::Communicator& comm, const Make& make,
                             DdpOptions options)
    : shards_(std::make_unique<parallel::Shards>(module, comm, options)),
      hook_(parallel::make_shard_hook(options.hook)) {
  options.init_sync = false;  // the shards have brought the ranks together
  ddp_ = std::make_unique<DistributedDataParallel>(module, comm, options);
  ddp_->set_hook(hook_);
  ddp_->set_layout(shards_->layout());
  for (const auto& [name, tensor] : shards_->owned()) owned_.push_back(tensor);
  optimizer_ = make(owned_);
}

ZeroOptimizer::~ZeroOptimizer() = default;

parallel::PieceSource ZeroOptimizer::pieces() const {
  return shards_->source();
}

void ZeroOptimizer::zero_grad() {
  for (const auto& [name, parameter] : shards_->parameters()) parameter.mutable_grad().reset();
  for (torch::Tensor& piece : owned_) piece.mutable_grad().reset();
  hook_->begin_step();
  taken_ = false;
}

// Alone, backward() leaves gradients where it made them.
void ZeroOptimizer::take_gradients() {
  if (std::exchange(taken_, true)) return;
  torch::NoGradGuard no_grad;
  const auto& pieces = shards_->pieces();
  for (size_t i = 0; i < pieces.size(); ++i) {
    const parallel::Piece& piece = pieces[i];
    const torch::Tensor& whole = shards_->parameters()[piece.parameter].second.grad();
    torch::Tensor part;
    if (shards_->comm().size() > 1)
      part = hook_->part(piece.bucket);
    else if (whole.defined())
      part = shards_->run_of(piece.parameter, whole);
    bool alone = shards_->comm().size() == 1;
    if (part.defined()) part = part.narrow(0, alone ? piece.begin : piece.offset, piece.end - piece.begin);
    owned_[i].mutable_grad() = part;
  }
}

double ZeroOptimizer::clip_grad_norm(double max_norm) {
  torch::NoGradGuard no_grad;
  take_gradients();
  torch::Tensor square = optim::clip_grad_norm(owned_, 0).to(torch::kFloat64).square().reshape({1});
  comm::all_reduce(shards_->comm(), square, ReduceOp::kSum, "norm of the gradients");
  torch::Tensor norm = square[0].sqrt();
  if (max_norm > 0) optim::scale_gradients(owned_, (max_norm / (norm + 1e-6)).clamp_max(1.0));
  return norm.item<double>();
}

void ZeroOptimizer::step() {
  take_gradients();
  optimizer_->step();
  shards_->begin_gather();
  shards_->wait_for_all();
  taken_ = false;
}

}  // namespace yoke
