#include "yoke/optim/clip.h"

#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <torch/utils.h>

#include "yoke/optim/gradients.h"

namespace yoke::optim {

torch::Tensor clip_grad_norm(const std::vector<torch::Tensor>& parameters, double max_norm) {
  torch::NoGradGuard no_grad;
  auto groups = gradient_groups(parameters);
  if (groups.empty()) {
    auto device = parameters.empty() ? torch::Device(torch::kCPU) : parameters[0].device();
    return at::zeros({}, at::TensorOptions().dtype(torch::kFloat).device(device));
  }
  std::vector<torch::Tensor> norms;
  torch::Device first = groups[0][0].device();
  for (const auto& group : groups) {
    torch::ScalarType wide = at::promoteTypes(group[0].scalar_type(), torch::kFloat);
    for (const torch::Tensor& norm : at::_foreach_norm(group, 2, wide)) norms.push_back(norm.to(first));
  }
  torch::ScalarType wide = torch::kFloat;
  for (const torch::Tensor& norm : norms) wide = at::promoteTypes(wide, norm.scalar_type());
  for (torch::Tensor& norm : norms) norm = norm.to(wide);
  torch::Tensor total = at::stack(norms).norm();
  if (max_norm <= 0) return total;
  // As torch.nn.utils.clip_grad_norm_: multiplying by 1 when there is nothing to clip spares a wait for the
  // device.
  scale_gradients(parameters, (max_norm / (total + 1e-6)).clamp_max(1.0));
  return total;
}

void scale_gradients(const std::vector<torch::Tensor>& parameters, const torch::Tensor& factor) {
  torch::NoGradGuard no_grad;
  for (const auto& group : gradient_groups(parameters))
    at::_foreach_mul_(group, factor.to(group[0].device(), group[0].scalar_type()));
}

}  // namespace yoke::optim
