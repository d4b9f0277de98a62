#include "yoke/optim/finite.h"

#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/stack.h>
#include <torch/utils.h>

#include <limits>

#include "yoke/optim/gradients.h"

namespace yoke::optim {

std::optional<std::string> first_non_finite_gradient(const std::vector<NamedTensor>& parameters) {
  torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> gradients;
  std::vector<size_t> owners;
  for (size_t i = 0; i < parameters.size(); ++i) {
    torch::Tensor values = gradient_values(parameters[i].second);
    if (!values.defined() || values.numel() == 0) continue;
    gradients.push_back(values);
    owners.push_back(i);
  }
  if (gradients.empty()) return std::nullopt;
  // The largest magnitude neither overflows nor hides a NaN.
  std::vector<torch::Tensor> largest = at::_foreach_norm(gradients, std::numeric_limits<double>::infinity());
  for (torch::Tensor& norm : largest) norm = norm.to(gradients[0].device(), torch::kDouble);
  torch::Tensor finite = at::stack(largest).isfinite().cpu();
  for (size_t i = 0; i < owners.size(); ++i) {
    if (!finite.const_data_ptr<bool>()[i]) return parameters[owners[i]].first;
  }
  return std::nullopt;
}

}  // namespace yoke::optim
