#include "yoke/optim/finite.h"

#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/stack.h>
#include <torch/utils.h>

#include <limits>

#include "yoke/optim/gradients.h"

namespace yoke::optim {

namespace {

// Floating-point tensors only, none empty.
std::optional<std::string> first_of(const std::vector<NamedTensor>& tensors) {
  if (tensors.empty()) return std::nullopt;
  // The largest magnitude neither overflows nor hides a NaN.
  std::vector<torch::Tensor> largest;
  for (const auto& [name, tensor] : tensors) largest.push_back(tensor);
  largest = at::_foreach_norm(largest, std::numeric_limits<double>::infinity());
  for (torch::Tensor& norm : largest) norm = norm.to(tensors[0].second.device(), torch::kDouble);
  torch::Tensor finite = at::stack(largest).isfinite().cpu();
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!finite.const_data_ptr<bool>()[i]) return tensors[i].first;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> first_non_finite_gradient(const std::vector<NamedTensor>& parameters) {
  torch::NoGradGuard no_grad;
  std::vector<NamedTensor> gradients;
  for (const auto& [name, parameter] : parameters) {
    torch::Tensor values = gradient_values(parameter);
    if (values.defined() && values.numel() > 0) gradients.emplace_back(name, values);
  }
  return first_of(gradients);
}

std::optional<std::string> first_non_finite(const std::vector<NamedTensor>& tensors) {
  torch::NoGradGuard no_grad;
  std::vector<NamedTensor> numbers;
  for (const auto& [name, tensor] : tensors)
    if (tensor.is_floating_point() && tensor.numel() > 0) numbers.emplace_back(name, tensor.detach());
  return first_of(numbers);
}

}  // namespace yoke::optim
