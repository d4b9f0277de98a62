#include "yoke/optim/gradients.h"

#include <torch/utils.h>

#include <map>
#include <string>
#include <utility>

namespace yoke::optim {

torch::Tensor gradient_values(const torch::Tensor& parameter) {
  torch::Tensor& gradient = parameter.mutable_grad();
  if (!gradient.defined() || !gradient.is_sparse()) return gradient;
  gradient = gradient.coalesce();
  return gradient._values();
}

std::vector<std::vector<torch::Tensor>> gradient_groups(const std::vector<torch::Tensor>& parameters) {
  torch::NoGradGuard no_grad;
  std::map<std::pair<std::string, torch::ScalarType>, std::vector<torch::Tensor>> groups;
  for (const torch::Tensor& parameter : parameters) {
    torch::Tensor values = gradient_values(parameter);
    if (values.defined()) groups[{values.device().str(), values.scalar_type()}].push_back(values);
  }
  std::vector<std::vector<torch::Tensor>> lists;
  for (auto& [key, group] : groups) lists.push_back(std::move(group));
  return lists;
}

}  // namespace yoke::optim
