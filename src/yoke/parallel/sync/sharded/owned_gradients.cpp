#include "yoke/parallel/sync/sharded/owned_gradients.h"

#include <algorithm>
#include <cmath>

#include "yoke/comm/tensors/tensors.h"
#include "yoke/optim/clip.h"
#include "yoke/optim/finite.h"

namespace yoke::parallel {

OwnedGradients::OwnedGradients(PieceSource source, optim::Optimizer& optimizer, optim::GradScaler& scaler,
                               const OneDeviceOptions& options)
    : source_(source),
      optimizer_(optimizer),
      scaler_(scaler),
      device_(options.device),
      scaled_(options.precision == Precision::kFp16),
      slices_(options.slices),
      clip_norm_(options.clip_norm) {
  for (const auto& [name, tensor] : source_.owned) owned_.push_back(tensor);
  for (size_t i = 0; i < source_.pieces.size(); ++i)
    if (!slices_ || slices_.counts(source_.parameters[source_.pieces[i].parameter].second))
      counted_.push_back(owned_[i]);
}

// Whether everybody's gradients are finite.
bool OwnedGradients::unscale() {
  bool here = scaler_.unscale(owned_);
  if (!scaled_) return here;
  here = !any_over(slices_, !here);
  torch::Tensor bad = torch::tensor({here ? 0 : 1}, torch::kInt32).to(device_);
  comm::all_reduce(source_.comm, bad, ReduceOp::kMax, "gradients that are not finite");
  const bool all = bad.item<int32_t>() == 0;
  scaler_.set_found_inf(!all);
  return all;
}

// Of all gradients of the model, each counted once.
torch::Tensor OwnedGradients::norm() const {
  torch::Tensor square = optim::clip_grad_norm(counted_, 0).to(torch::kFloat64).square().reshape({1});
  square = square.to(device_);
  comm::all_reduce(source_.comm, square, ReduceOp::kSum, "norm of the gradients");
  if (slices_) return torch::tensor(std::sqrt(sum_over(slices_, square.item<double>())), torch::kFloat64);
  return square[0].sqrt();
}

CommitResult OwnedGradients::commit(const CommitOptions& commit, const std::function<void()>& updated) {
  torch::NoGradGuard no_grad;
  CommitResult result;
  bool finite = unscale();
  if (finite && (clip_norm_ > 0 || commit.measure_norm)) {
    torch::Tensor whole = norm();
    if (clip_norm_ > 0)
      optim::scale_gradients(owned_, (clip_norm_ / (whole + 1e-6)).clamp_max(1.0).to(owned_[0].device()));
    if (commit.measure_norm) {
      result.grad_norm = whole.item<double>();
      finite = std::isfinite(*result.grad_norm);
    }
  }
  if (finite) {
    optimizer_.step(commit.lr);
    if (updated) updated();
  }
  scaler_.update();
  result.updated = finite;
  return result;
}

std::vector<StatePiece> OwnedGradients::pieces() const {
  std::vector<StatePiece> pieces;
  for (size_t i = 0; i < source_.pieces.size(); ++i)
    pieces.push_back(piece_of(source_, i, StatePiece::Kind::kParameter, owned_[i].grad()));
  return pieces;
}

std::optional<std::string> OwnedGradients::first_non_finite() const {
  auto none = static_cast<int64_t>(source_.parameters.size()), first = none;
  for (size_t i = 0; i < source_.pieces.size(); ++i)
    if (optim::first_non_finite_gradient({{"", owned_[i]}}))
      first = std::min(first, static_cast<int64_t>(source_.pieces[i].parameter));
  torch::Tensor agreed = torch::tensor({first}, torch::kInt64).to(device_);
  comm::all_reduce(source_.comm, agreed, ReduceOp::kMin, "first gradient that is not finite");
  first = agreed.item<int64_t>();
  if (first == none) return std::nullopt;
  return source_.parameters[static_cast<size_t>(first)].first;
}

}  // namespace yoke::parallel
