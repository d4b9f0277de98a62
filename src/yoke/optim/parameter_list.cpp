#include "yoke/optim/parameter_list.h"

#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/utils.h>

#include <map>
#include <tuple>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/optim/settings.h"

namespace yoke::optim {
namespace {

bool is_low_precision(torch::ScalarType type) {
  return type == torch::kBFloat16 || type == torch::kHalf;
}

void check_parameter(const std::string& name, const torch::Tensor& parameter, torch::Device device) {
  YOKE_CHECK(parameter.defined() && parameter.is_leaf() && parameter.is_floating_point(),
             "parameter '{}' is not a floating-point leaf tensor", name);
  YOKE_CHECK(parameter.is_non_overlapping_and_dense(), "parameter '{}' has gaps or overlaps in memory", name);
  YOKE_CHECK(parameter.device() == device, "parameter '{}' is on {}, the first one on {}", name,
             parameter.device().str(), device.str());
}

bool has_dense_gradient(const torch::Tensor& parameter) {
  return parameter.grad().defined() && !parameter.grad().is_sparse();
}

bool same_layout(const torch::Tensor& a, const torch::Tensor& b) {
  for (int64_t dim = 0; dim < a.dim(); ++dim) {
    if (a.size(dim) != 1 && a.stride(dim) != b.stride(dim)) return false;
  }
  return true;
}

// Fused CPU kernels walk the memory of parameter and gradient side by side.
torch::Tensor with_layout_of(const torch::Tensor& target, const torch::Tensor& gradient) {
  return same_layout(target, gradient) ? gradient : at::empty_like(target).copy_(gradient);
}

}  // namespace

ParameterList::ParameterList(const OptimizerOptions& options, std::vector<NamedTensor> parameters)
    : parameters_(std::move(parameters)) {
  torch::NoGradGuard no_grad;
  std::map<std::tuple<torch::ScalarType, double, double>, std::vector<size_t>> together;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    check_parameter(name(i), parameter(i), parameter(0).device());
    torch::ScalarType type = parameter(i).scalar_type();
    const ParameterSettings& own = settings_.emplace_back(settings_of(options, name(i)));
    uniform_ = uniform_ && own.lr == 1 && own.weight_decay == options.weight_decay;
    together[{type, own.lr, own.weight_decay}].push_back(i);
    targets_.push_back(is_low_precision(type) ? parameter(i).detach().to(torch::kFloat) : parameter(i));
  }
  for (auto& [key, indices] : together) groups_.push_back(std::move(indices));
}

torch::Device ParameterList::device() const {
  return parameters_.empty() ? torch::Device(torch::kCPU) : parameter(0).device();
}

UpdateGroup ParameterList::gather(const std::vector<size_t>& group) const {
  UpdateGroup update;
  update.settings = settings_[group[0]];
  std::vector<torch::Tensor> low, wide;
  for (size_t i : group) {
    if (!has_dense_gradient(parameter(i))) continue;
    update.indices.push_back(i);
    update.targets.push_back(target(i));
    if (has_master(i)) {
      low.push_back(parameter(i).grad());
      wide.push_back(at::empty_like(target(i)));
    } else {
      wide.push_back(with_layout_of(target(i), parameter(i).grad()));
    }
  }
  if (!low.empty()) at::_foreach_copy_(wide, low);
  update.gradients = std::move(wide);
  return update;
}

std::vector<UpdateGroup> ParameterList::dense_updates() const {
  std::vector<UpdateGroup> updates;
  for (const auto& group : groups_) {
    UpdateGroup update = gather(group);
    if (!update.indices.empty()) updates.push_back(std::move(update));
  }
  return updates;
}

std::vector<SparseUpdate> ParameterList::sparse_updates() const {
  std::vector<SparseUpdate> updates;
  for (size_t i = 0; i < size(); ++i) {
    const torch::Tensor& gradient = parameter(i).grad();
    if (!gradient.defined() || !gradient.is_sparse()) continue;
    updates.push_back({i, target(i), gradient.to(target(i).scalar_type()).coalesce(), settings_[i]});
  }
  return updates;
}

void ParameterList::write_back() const {
  std::vector<torch::Tensor> masters, parameters;
  for (size_t i = 0; i < size(); ++i) {
    if (!has_master(i)) continue;
    masters.push_back(target(i));
    parameters.push_back(parameter(i));
  }
  if (!masters.empty()) at::_foreach_copy_(parameters, masters);
}

void ParameterList::zero_grad() const {
  for (const auto& [name, parameter] : parameters_) parameter.mutable_grad().reset();
}

std::vector<torch::Tensor> ParameterList::zeros() const {
  torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> tensors;
  for (const torch::Tensor& target : targets_) tensors.push_back(at::zeros_like(target));
  return tensors;
}

void ParameterList::append_masters(std::vector<NamedTensor>& state) const {
  for (size_t i = 0; i < size(); ++i) {
    if (has_master(i)) state.emplace_back("master/" + name(i), target(i));
  }
}

void ParameterList::append(std::vector<NamedTensor>& state, const std::string& kind,
                           const std::vector<torch::Tensor>& tensors) const {
  for (size_t i = 0; i < size(); ++i) state.emplace_back(kind + "/" + name(i), tensors[i]);
}

std::vector<torch::Tensor> select(const std::vector<torch::Tensor>& tensors,
                                  const std::vector<size_t>& indices) {
  std::vector<torch::Tensor> chosen;
  chosen.reserve(indices.size());
  for (size_t i : indices) chosen.push_back(tensors[i]);
  return chosen;
}

}  // namespace yoke::optim
