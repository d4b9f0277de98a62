#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "yoke/compute/fast_path.h"
#include "yoke/compute/image_kernels.h"
#include "yoke/compute/image_tensors_cuda.h"
#include "yoke/compute/shared_batch_norm.h"
#include "yoke/kernels/cuda/batch_norm.h"
#include "yoke/kernels/cuda/have_kernels.h"

namespace yoke::compute::cuda {
namespace {

using kernels::CudaBatchNorm;
using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

CudaBatchNorm describe(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps, bool relu) {
  CudaBatchNorm in;
  in.type = *number_of(x);
  in.parameter_type = *number_of(weight);
  in.channels = x.size(1);
  in.rows = x.numel() / in.channels;
  in.x = x.const_data_ptr();
  in.weight = weight.const_data_ptr();
  in.bias = bias.const_data_ptr();
  in.eps = static_cast<float>(eps);
  in.relu = relu;
  in.stream = stream_of(x);
  return in;
}

struct Normalise : torch::autograd::Function<Normalise> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const std::optional<Tensor>& residual, const Tensor& running_mean,
                        const Tensor& running_var, double momentum, double eps, bool relu) {
    c10::cuda::CUDAGuard guard(x.device());
    CudaBatchNorm in = describe(x, weight, bias, eps, relu);
    if (residual) in.residual = residual->const_data_ptr();
    Tensor y = at::empty_like(x), mean = scratch(in.channels, x), variance = scratch(in.channels, x);
    kernels::CudaRunningStatistics running;
    if (momentum != 0 && running_mean.defined())
      running = {*number_of(running_mean), running_mean.data_ptr(), running_var.data_ptr(),
                 static_cast<float>(momentum)};
    kernels::batch_norm_statistics(in, mean.data_ptr<float>(), variance.data_ptr<float>(), running,
                                   scratch(kernels::batch_norm_workspace(in), x).data_ptr<float>());
    // One byte per sixteen of x.
    Tensor mask;
    if (relu && residual)
      mask = at::empty({x.numel() * x.element_size() / 16},
                       x.options().dtype(torch::kByte).memory_format(at::MemoryFormat::Contiguous));
    kernels::batch_norm_apply(in, mean.const_data_ptr<float>(), variance.const_data_ptr<float>(),
                              y.data_ptr(), mask.defined() ? mask.data_ptr<uint8_t>() : nullptr);
    ctx->save_for_backward({x, weight, bias, mean, variance, mask});
    ctx->saved_data["eps"] = eps;
    ctx->saved_data["relu"] = relu;
    ctx->saved_data["residual"] = residual.has_value();
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    require_first_derivative("batch_norm");
    variable_list saved = ctx->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &bias = saved[2], &mask = saved[5];
    c10::cuda::CUDAGuard guard(x.device());
    bool relu = ctx->saved_data["relu"].toBool(), residual = ctx->saved_data["residual"].toBool();
    CudaBatchNorm in = describe(x, weight, bias, ctx->saved_data["eps"].toDouble(), relu);
    int64_t pitch = pixel_pitch(grads[0]);
    Tensor grad_y = pitch != 0 ? grads[0] : as_pixels(grads[0]);
    Tensor grad_x = at::empty_like(x), grad_weight = at::empty_like(weight), grad_bias = at::empty_like(bias);
    // Without ReLU the gradient passes to the residual unchanged.
    Tensor grad_residual = !residual ? Tensor() : relu ? at::empty_like(x) : grad_y;
    kernels::CudaBatchNormGradients g;
    g.grad_y = grad_y.const_data_ptr();
    g.grad_y_pitch = pitch;
    g.mask = mask.defined() ? mask.const_data_ptr<uint8_t>() : nullptr;
    g.mean = saved[3].const_data_ptr<float>();
    g.variance = saved[4].const_data_ptr<float>();
    g.grad_x = grad_x.data_ptr();
    g.grad_residual = residual && relu ? grad_residual.data_ptr() : nullptr;
    g.grad_weight = grad_weight.data_ptr();
    g.grad_bias = grad_bias.data_ptr();
    kernels::batch_norm_backward(in, g, scratch(kernels::batch_norm_workspace(in), x).data_ptr<float>());
    return {grad_x, grad_weight, grad_bias, grad_residual, Tensor(), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

bool is_row_of_numbers(const Tensor& t, const Tensor& x) {
  return t.defined() && t.device() == x.device() && number_of(t) && t.is_contiguous() &&
         t.numel() == x.size(1);
}

}  // namespace

bool can_batch_norm(const torch::nn::BatchNorm2dImpl& norm, const Tensor& x, const Tensor& residual) {
  if (!kernels::have_cuda_kernels() || !is_pixels(x) || x.numel() == x.size(1)) return false;
  bool affine = is_row_of_numbers(norm.weight, x) && is_row_of_numbers(norm.bias, x) &&
                norm.weight.scalar_type() == norm.bias.scalar_type();
  bool running = is_row_of_numbers(norm.running_mean, x) && is_row_of_numbers(norm.running_var, x) &&
                 norm.running_mean.scalar_type() == norm.running_var.scalar_type();
  bool added = !residual.defined() || (residual.sizes() == x.sizes() && residual.device() == x.device() &&
                                       residual.scalar_type() == x.scalar_type());
  // Evaluation with gradients is left to LibTorch.
  bool mode = norm.is_training() ||
              (!torch::GradMode::is_enabled() && running && norm.running_mean.scalar_type() == torch::kFloat);
  return affine && running && added && mode;
}

Tensor batch_norm(torch::nn::BatchNorm2dImpl& norm, const Tensor& x, const Tensor& residual, bool relu,
                  double momentum) {
  auto addend = residual.defined() ? std::optional(as_pixels(residual)) : std::nullopt;
  if (norm.is_training())
    return Normalise::apply(x, norm.weight, norm.bias, addend, norm.running_mean, norm.running_var, momentum,
                            norm.options.eps(), relu);
  c10::cuda::CUDAGuard guard(x.device());
  CudaBatchNorm in = describe(x, norm.weight, norm.bias, norm.options.eps(), relu);
  if (addend) in.residual = addend->const_data_ptr();
  Tensor y = at::empty_like(x);
  kernels::batch_norm_apply(in, norm.running_mean.const_data_ptr<float>(),
                            norm.running_var.const_data_ptr<float>(), y.data_ptr(), nullptr);
  return y;
}

}  // namespace yoke::compute::cuda
