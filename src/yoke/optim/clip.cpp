#include "yoke/optim/clip.h"

#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <torch/utils.h>

#include <cmath>

#include "yoke/optim/gradients.h"

namespace yoke::optim {

namespace {

constexpr int64_t kRun = 1 << 16;  // elements converted at a time

// Norms in fp32 overflow from elements of 1e19 on: then repeat in fp64.
torch::Tensor wide_norm(const torch::Tensor& gradient) {
  torch::Tensor sum = at::zeros({}, torch::kDouble);
  for (const torch::Tensor& run : gradient.reshape({-1}).split(kRun))
    sum += run.to(torch::kDouble).square().sum();
  return sum.sqrt();
}

// The CPU converts a whole gradient to sum it in fp64, so only overflown ones are; a GPU converts in
// registers, and must not be synchronised with.
std::vector<torch::Tensor> norms_of(const std::vector<torch::Tensor>& group) {
  if (!group[0].device().is_cpu()) return at::_foreach_norm(group, 2, torch::kDouble);
  std::vector<torch::Tensor> norms =
      at::_foreach_norm(group, 2, at::promoteTypes(group[0].scalar_type(), torch::kFloat));
  for (size_t i = 0; i < norms.size(); ++i) {
    norms[i] = norms[i].to(torch::kDouble);
    if (std::isinf(norms[i].item<double>()) && group[i].scalar_type() != torch::kDouble)
      norms[i] = wide_norm(group[i]);
  }
  return norms;
}

}  // namespace

torch::Tensor clip_grad_norm(const std::vector<torch::Tensor>& parameters, double max_norm) {
  torch::NoGradGuard no_grad;
  auto groups = gradient_groups(parameters);
  if (groups.empty()) {
    auto device = parameters.empty() ? torch::Device(torch::kCPU) : parameters[0].device();
    return at::zeros({}, at::TensorOptions().dtype(torch::kDouble).device(device));
  }
  std::vector<torch::Tensor> norms;
  torch::Device first = groups[0][0].device();
  for (const auto& group : groups)
    for (const torch::Tensor& norm : norms_of(group)) norms.push_back(norm.to(first));
  torch::Tensor total = at::stack(norms).norm();
  if (max_norm <= 0) return total;
  // As torch.nn.utils.clip_grad_norm_: multiplying by 1 if there is nothing to clip avoids synchronising with
  // the device.
  scale_gradients(parameters, (max_norm / (total + 1e-6)).clamp_max(1.0));
  return total;
}

void scale_gradients(const std::vector<torch::Tensor>& parameters, const torch::Tensor& factor) {
  torch::NoGradGuard no_grad;
  for (const auto& group : gradient_groups(parameters))
    at::_foreach_mul_(group, factor.to(group[0].device(), group[0].scalar_type()));
}

}  // namespace yoke::optim
