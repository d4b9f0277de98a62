#include "yoke/optim/first_order.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/zeros.h>
#include <torch/utils.h>

#include <utility>

namespace yoke::optim {

FirstOrderOptimizer::FirstOrderOptimizer(const OptimizerOptions& options, std::vector<NamedTensor> parameters)
    : list_(options, std::move(parameters)) {
  if (list_.device().is_cuda()) {
    lr_on_device_ = at::zeros({}, at::TensorOptions().dtype(torch::kFloat).device(list_.device()));
  }
}

void FirstOrderOptimizer::set_lr(double lr) {
  lr_ = lr;
  if (lr_on_device_.defined()) lr_on_device_.fill_(lr);
}

torch::Tensor FirstOrderOptimizer::rate(const ParameterSettings& group, torch::ScalarType type) const {
  if (lr_on_device_.defined()) return (lr_on_device_ * group.lr).to(type);
  return torch::full({}, lr_ * group.lr, torch::TensorOptions().dtype(type).device(list_.device()));
}

bool FirstOrderOptimizer::follow(const ScaledUpdate& scaled) {
  if (!can_follow_scaled_update()) return false;
  scaled_ = scaled;
  return true;
}

bool follow_scaled_update(Optimizer& optimizer, const ScaledUpdate& scaled) {
  auto* first_order = dynamic_cast<FirstOrderOptimizer*>(&optimizer);
  return first_order != nullptr && first_order->follow(scaled);
}

bool can_follow_scaled_update(const std::string& optimizer) {
  return optimizer == "sgd" || optimizer == "adamw";
}

void FirstOrderOptimizer::update(const LossFunction&) {
  torch::NoGradGuard no_grad;
  for (const UpdateGroup& group : list_.dense_updates()) update_dense(group);
  for (const SparseUpdate& update : list_.sparse_updates()) update_sparse(update);
  list_.write_back();
}

StepCounters::StepCounters(const ParameterList& list) {
  auto count = static_cast<int64_t>(list.size());
  all_ = at::zeros({count}, at::TensorOptions().dtype(torch::kFloat).device(list.device()));
  single_ = all_.unbind(0);
}

void StepCounters::advance(const std::vector<size_t>& indices, const std::optional<torch::Tensor>& skip) {
  const bool all = indices.size() == single_.size();
  if (all && skip) {
    all_.add_(1 - *skip);
  } else if (all) {
    all_.add_(1);
  } else if (skip) {
    at::_foreach_add_(select(indices), 1 - *skip);
  } else {
    at::_foreach_add_(select(indices), 1);
  }
}

std::vector<torch::Tensor> StepCounters::select(const std::vector<size_t>& indices) const {
  return optim::select(single_, indices);
}

}  // namespace yoke::optim
