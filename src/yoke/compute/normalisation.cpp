// Batch normalisation with the addition and ReLU that follow, in one pass each way for images with channels
// last.
#include <torch/csrc/autograd/custom_function.h>

#include "yoke/compute/fast_path.h"
#include "yoke/compute/image_kernels.h"
#include "yoke/compute/layers.h"
#include "yoke/compute/parallel.h"
#include "yoke/compute/recompute.h"
#include "yoke/compute/shared_batch_norm.h"
#include "yoke/kernels/batch_norm.h"

namespace yoke::compute {
namespace {

using kernels::BatchNormGradients;
using kernels::BatchNormInput;
using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kColumns = 32;  // channels per task: two cache lines of a pixel

BatchNormInput columns_of(const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias,
                          int64_t first, int64_t last) {
  BatchNormInput in;
  in.x = x.const_data_ptr<float>() + first;
  in.residual = residual.defined() ? residual.const_data_ptr<float>() + first : nullptr;
  in.rows = x.numel() / x.size(1);
  in.width = last - first;
  in.pitch = x.size(1);
  in.weight = weight.const_data_ptr<float>() + first;
  in.bias = bias.const_data_ptr<float>() + first;
  return in;
}

void for_columns(int64_t channels, const std::function<void(int64_t first, int64_t last)>& body) {
  parallel_for((channels + kColumns - 1) / kColumns, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(i * kColumns, std::min((i + 1) * kColumns, channels));
  });
}

struct BatchNormFunction : torch::autograd::Function<BatchNormFunction> {
  // Returns {y, mean, biased variance}; only y has a gradient.
  static variable_list forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight,
                               const Tensor& bias, const std::optional<Tensor>& maybe_residual, double eps,
                               bool relu) {
    Tensor residual = maybe_residual.value_or(Tensor());
    Tensor y = at::empty_like(x);
    Tensor mean = at::empty({x.size(1)}, x.options());
    Tensor inverse = at::empty_like(mean);
    Tensor variance = at::empty_like(mean);
    for_columns(x.size(1), [&](int64_t first, int64_t last) {
      BatchNormInput in = columns_of(x, residual, weight, bias, first, last);
      in.eps = static_cast<float>(eps);
      in.relu = relu;
      kernels::batch_norm(in, y.data_ptr<float>() + first, mean.data_ptr<float>() + first,
                          inverse.data_ptr<float>() + first, variance.data_ptr<float>() + first);
    });
    ctx->save_for_backward({x, weight, bias, mean, inverse, relu ? y : Tensor()});
    ctx->saved_data["residual"] = residual.defined();
    ctx->mark_non_differentiable({mean, variance});
    return {y, mean, variance};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    require_first_derivative("batch_norm");
    variable_list saved = ctx->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &bias = saved[2], &mean = saved[3], &inverse = saved[4];
    const Tensor& y = saved[5];
    bool relu = y.defined();
    Tensor grad_y = grads[0].contiguous(at::MemoryFormat::ChannelsLast);
    Tensor grad_x = at::empty_like(x);
    Tensor grad_weight = at::empty_like(weight);
    Tensor grad_bias = at::empty_like(weight);
    bool residual = ctx->saved_data["residual"].toBool();
    // Without ReLU the gradient passes to the residual unchanged.
    Tensor grad_residual = residual ? (relu ? at::empty_like(x) : grad_y) : Tensor();
    for_columns(x.size(1), [&](int64_t first, int64_t last) {
      BatchNormInput in = columns_of(x, Tensor(), weight, bias, first, last);
      in.relu = relu;
      BatchNormGradients g;
      g.grad_y = grad_y.const_data_ptr<float>() + first;
      g.y = relu ? y.const_data_ptr<float>() + first : nullptr;
      g.mean = mean.const_data_ptr<float>() + first;
      g.inverse = inverse.const_data_ptr<float>() + first;
      g.grad_x = grad_x.data_ptr<float>() + first;
      g.grad_residual = residual && relu ? grad_residual.data_ptr<float>() + first : nullptr;
      g.grad_weight = grad_weight.data_ptr<float>() + first;
      g.grad_bias = grad_bias.data_ptr<float>() + first;
      kernels::batch_norm_backward(in, g);
    });
    return {grad_x, grad_weight, grad_bias, grad_residual, Tensor(), Tensor()};
  }
};

// Running statistics as torch::nn::BatchNorm2d keeps them: the unbiased variance.
void update_statistics(torch::nn::BatchNorm2dImpl& norm, const Tensor& mean, const Tensor& variance,
                       int64_t rows, double momentum) {
  torch::NoGradGuard no_grad;
  double unbiased = static_cast<double>(rows) / static_cast<double>(std::max<int64_t>(rows - 1, 1));
  norm.running_mean.mul_(1 - momentum).add_(mean, momentum);
  norm.running_var.mul_(1 - momentum).add_(variance, momentum * unbiased);
}

Tensor plain_batch_norm(torch::nn::BatchNorm2dImpl& norm, const Tensor& x, double momentum) {
  if (auto exchange = statistics_exchange_of(norm.weight, norm.running_mean); exchange && norm.is_training())
    return shared_batch_norm(x, norm.weight, norm.bias, norm.running_mean, norm.running_var, momentum,
                             norm.options.eps(), exchange);
  return at::batch_norm(x, norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.is_training(),
                        momentum, norm.options.eps(), at::globalContext().userEnabledCuDNN());
}

// Without a momentum the statistics are the mean over all batches so far.
double momentum_of(const torch::nn::BatchNorm2dImpl& norm, bool counted) {
  if (norm.options.momentum() || !norm.num_batches_tracked.defined())
    return norm.options.momentum().value_or(0.0);
  return 1.0 / (norm.num_batches_tracked.item<double>() + (counted ? 0 : 1));
}

Tensor normalised(torch::nn::BatchNorm2dImpl& norm, const Tensor& x, const Tensor& residual, bool relu) {
  bool training = norm.is_training();
  bool update = training && !in_recomputation();
  bool count = update && norm.num_batches_tracked.defined() && !x.is_cuda();
  if (count) norm.num_batches_tracked.add_(1);
  // Momentum 0 multiplies the statistics by exactly 1 and adds exactly 0.
  double momentum = update ? momentum_of(norm, count) : 0.0;
  bool shared = statistics_exchange_of(norm.weight, norm.running_mean) != nullptr;
  if (!(shared && training) && cuda::can_batch_norm(norm, x, residual))
    return cuda::batch_norm(norm, x, residual, relu, momentum);
  bool fast = training && plain_floats(x, norm.weight, norm.bias, norm.running_mean) && x.dim() == 4 &&
              x.numel() > x.size(1) && !shared &&
              (!residual.defined() || (plain_float(residual) && residual.sizes() == x.sizes()));
  if (!fast) {
    Tensor y = plain_batch_norm(norm, x, momentum);
    // In place: BatchNorm's backward keeps its input, not its output.
    if (residual.defined()) y = y.add_(residual);
    return relu ? at::relu_(y) : y;
  }
  // Nets with batch norm run with channels last from the first one on: the layers after it follow its format.
  constexpr auto kPixels = at::MemoryFormat::ChannelsLast;
  auto addend = residual.defined() ? std::optional(residual.contiguous(kPixels)) : std::nullopt;
  variable_list out = BatchNormFunction::apply(x.contiguous(kPixels), norm.weight, norm.bias, addend,
                                               norm.options.eps(), relu);
  if (update) update_statistics(norm, out[1], out[2], x.numel() / x.size(1), momentum);
  return out[0];
}

}  // namespace

std::vector<Tensor> batch_counters(const torch::nn::Module& module) {
  std::vector<Tensor> counters;
  for (const auto& part : module.modules()) {
    const auto* norm = dynamic_cast<const torch::nn::BatchNorm2dImpl*>(part.get());
    bool counts = norm != nullptr && norm->num_batches_tracked.defined();
    if (counts && norm->num_batches_tracked.is_cuda()) counters.push_back(norm->num_batches_tracked);
  }
  return counters;
}

Tensor batch_norm(torch::nn::BatchNorm2dImpl& norm, const Tensor& x) {
  return normalised(norm, x, Tensor(), /*relu=*/false);
}

Tensor batch_norm_relu(torch::nn::BatchNorm2dImpl& norm, const Tensor& x) {
  return normalised(norm, x, Tensor(), /*relu=*/true);
}

Tensor batch_norm_add_relu(torch::nn::BatchNorm2dImpl& norm, const Tensor& x, const Tensor& residual) {
  return normalised(norm, x, residual, /*relu=*/true);
}

}  // namespace yoke::compute
