#include <ATen/autocast_mode.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "yoke/compute/deferred_gradients.h"
#include "yoke/compute/fast_path.h"
#include "yoke/compute/image_tensors_cuda.h"
#include "yoke/compute/kept_sums.h"
#include "yoke/compute/product.h"
#include "yoke/compute/token_kernels.h"
#include "yoke/kernels/cuda/activation.h"
#include "yoke/kernels/cuda/have_kernels.h"
#include "yoke/kernels/cuda/layer_norm.h"
#include "yoke/kernels/cuda/pack.h"

namespace yoke::compute::cuda {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool aligned(const Tensor& x) {
  return reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
}

bool is_dense(const Tensor& x) {
  return x.defined() && x.is_cuda() && x.numel() > 0 && number_of(x) && x.is_contiguous() && !x.is_neg() &&
         aligned(x);
}

bool usable(const Tensor& x) {
  return kernels::have_cuda_kernels() && is_dense(x) && x.dim() >= 2 && x.size(-1) % 8 == 0 &&
         !at::autocast::is_autocast_enabled(at::kCUDA);
}

bool alike(const Tensor& x, const Tensor& other) {
  return is_dense(other) && other.scalar_type() == x.scalar_type() && other.device() == x.device();
}

Tensor dense(const Tensor& x) {
  Tensor contiguous = x.contiguous();
  return aligned(contiguous) ? contiguous : contiguous.clone();
}

kernels::CudaLayerNorm describe(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  return {*number_of(x),         x.numel() / x.size(-1),  x.size(-1),  weight.const_data_ptr(),
          bias.const_data_ptr(), static_cast<float>(eps), stream_of(x)};
}

struct AddLayerNorm : torch::autograd::Function<AddLayerNorm> {
  // {x + added, its norm}; without `added` the first is x.
  static variable_list forward(AutogradContext* ctx, const Tensor& x, const std::optional<Tensor>& added,
                               const Tensor& weight, const Tensor& bias, double eps) {
    c10::cuda::CUDAGuard guard(x.device());
    kernels::CudaLayerNorm in = describe(x, weight, bias, eps);
    Tensor sum = added ? at::empty_like(x) : x, y = at::empty_like(x);
    Tensor mean = scratch(in.rows, x), inverse = scratch(in.rows, x);
    kernels::layer_norm(in, x.const_data_ptr(), added ? added->const_data_ptr() : nullptr,
                        added ? sum.data_ptr() : nullptr, y.data_ptr(), mean.data_ptr<float>(),
                        inverse.data_ptr<float>());
    ctx->save_for_backward({sum, weight, bias, mean, inverse});
    ctx->saved_data["added"] = added.has_value();
    ctx->set_materialize_grads(false);
    return {sum, y};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    require_first_derivative("layer_norm");
    bool added = ctx->saved_data["added"].toBool();
    if (!grads[1].defined()) return {grads[0], added ? grads[0] : Tensor(), Tensor(), Tensor(), Tensor()};
    variable_list saved = ctx->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &bias = saved[2];
    c10::cuda::CUDAGuard guard(x.device());
    kernels::CudaLayerNorm in = describe(x, weight, bias, /*eps=*/0);
    Tensor grad_y = dense(grads[1]), grad_sum = grads[0].defined() ? dense(grads[0]) : Tensor();
    Tensor grad_x = at::empty_like(x), grad_weight = at::empty_like(weight), grad_bias = at::empty_like(bias);
    Tensor grad_x_sums = at::empty_like(bias);
    kernels::layer_norm_backward(in, x.const_data_ptr(), saved[3].const_data_ptr<float>(),
                                 saved[4].const_data_ptr<float>(), grad_y.const_data_ptr(),
                                 grad_sum.defined() ? grad_sum.const_data_ptr() : nullptr, grad_x.data_ptr(),
                                 grad_weight.data_ptr(), grad_bias.data_ptr(), grad_x_sums.data_ptr(),
                                 scratch(kernels::layer_norm_workspace(in), x).data_ptr<float>());
    keep_sums(grad_x, grad_x_sums);
    return {grad_x, added ? grad_x : Tensor(), grad_weight, grad_bias, Tensor()};
  }
};

struct AffineGelu : torch::autograd::Function<AffineGelu> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight, const Tensor& bias) {
    GeluOfProduct out = product_gelu(x.view({-1, x.size(-1)}), weight, bias);
    ctx->save_for_backward({x, weight, bias, out.z});
    std::vector<int64_t> shape = x.sizes().vec();
    shape.back() = weight.size(1);
    return out.y.view(shape);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    require_first_derivative("linear");
    variable_list saved = ctx->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &bias = saved[2], &z = saved[3];
    c10::cuda::CUDAGuard guard(x.device());
    kernels::CudaActivation in{*number_of(z), z.size(0), z.size(1), stream_of(z)};
    Tensor grad_y = dense(grads[0]), grad = at::empty_like(z), grad_bias = at::empty_like(bias);
    kernels::gelu_backward(in, grad_y.const_data_ptr(), z.const_data_ptr(), grad.data_ptr(),
                           grad_bias.data_ptr(),
                           scratch(kernels::activation_workspace(in), z).data_ptr<float>());
    Tensor grad_x = ctx->needs_input_grad(0) ? product(grad, weight.t()).view(x.sizes()) : Tensor();
    Tensor grad_weight = ctx->needs_input_grad(1) ? product(x.view({-1, x.size(-1)}).t(), grad) : Tensor();
    return {grad_x, grad_weight, grad_bias};
  }
};

// [B, T, 3 * width] to three views [B, heads, T, width / heads].
std::array<Tensor, 3> views_of(const Tensor& packed, int64_t heads) {
  Tensor parts = packed.view({packed.size(0), packed.size(1), 3, heads, packed.size(2) / (3 * heads)});
  auto part = [&](int64_t i) { return parts.select(2, i).transpose(1, 2); };
  return {part(0), part(1), part(2)};
}

Tensor readable(const Tensor& g) {
  int64_t numbers = 16 / g.element_size();
  bool strides = g.stride(0) % numbers == 0 && g.stride(1) % numbers == 0 && g.stride(2) % numbers == 0;
  return g.stride(3) == 1 && strides && aligned(g) ? g : g.contiguous();
}

// The gradients of q, k and v packed as [B, T, 3 * width]; its column sums in `sums`, if defined.
Tensor packed_gradient(const variable_list& grads, const Tensor& sums) {
  const Tensor& any = grads[0];  // [B, heads, T, size]
  kernels::CudaPacking in{*number_of(any), any.size(0), any.size(2),
                          any.size(1),     any.size(3), stream_of(any)};
  Tensor packed = at::empty({in.items, in.tokens, 3 * in.heads * in.size},
                            any.options().memory_format(at::MemoryFormat::Contiguous));
  std::array<Tensor, 3> kept;
  kernels::CudaHeads from[3];
  for (size_t i = 0; i < 3; ++i) {
    const Tensor& g = kept[i] = readable(grads[i]);
    from[i] = {g.const_data_ptr(), g.stride(0), g.stride(1), g.stride(2)};
  }
  if (!sums.defined()) {
    kernels::pack_heads(in, from, packed.data_ptr(), nullptr, nullptr);
  } else {
    kernels::pack_heads(in, from, packed.data_ptr(), sums.data_ptr(),
                        scratch(kernels::pack_workspace(in), any).data_ptr<float>());
  }
  return packed;
}

struct SplitHeads : torch::autograd::Function<SplitHeads> {
  static variable_list forward(AutogradContext*, const Tensor& packed, int64_t heads) {
    auto [q, k, v] = views_of(packed, heads);
    return {q, k, v};
  }

  static variable_list backward(AutogradContext*, const variable_list& grads) {
    require_first_derivative("split_heads");
    c10::cuda::CUDAGuard guard(grads[0].device());
    return {packed_gradient(grads, {}), Tensor()};
  }
};

struct AffineHeads : torch::autograd::Function<AffineHeads> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight,
                               const Tensor& bias, int64_t heads) {
    ctx->save_for_backward({x, weight, bias});
    Tensor packed =
        product_plus(x.view({-1, x.size(-1)}), weight, bias, {}).view({x.size(0), x.size(1), weight.size(1)});
    // Separate outputs for autograd, not views of a tensor it never saw.
    at::AutoDispatchBelowADInplaceOrView guard;
    auto [q, k, v] = views_of(packed, heads);
    return {q, k, v};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    require_first_derivative("linear_split_heads");
    variable_list saved = ctx->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &bias = saved[2];
    c10::cuda::CUDAGuard guard(x.device());
    Tensor grad_bias = at::empty_like(bias);
    Tensor grad = packed_gradient(grads, grad_bias).view({-1, weight.size(1)});
    Tensor grad_x = ctx->needs_input_grad(0) ? product(grad, weight.t()).view(x.sizes()) : Tensor();
    Tensor grad_weight = ctx->needs_input_grad(1) ? product(x.view({-1, x.size(-1)}).t(), grad) : Tensor();
    return {grad_x, grad_weight, grad_bias, Tensor()};
  }
};

}  // namespace

bool can_add_layer_norm(const Tensor& x, const Tensor& added, const Tensor& weight, const Tensor& bias) {
  return usable(x) && x.size(-1) <= kernels::kWidestNorm && alike(x, weight) && alike(x, bias) &&
         weight.numel() == x.size(-1) && bias.numel() == x.size(-1) &&
         (!added.defined() || (alike(x, added) && added.sizes() == x.sizes()));
}

Normed add_layer_norm(const Tensor& x, const Tensor& added, const Tensor& weight, const Tensor& bias,
                      double eps) {
  variable_list out =
      AddLayerNorm::apply(x, added.defined() ? std::optional(added) : std::nullopt, weight, bias, eps);
  return {out[0], out[1]};
}

bool can_affine_gelu(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return usable(x) && alike(x, weight) && bias.defined() && alike(x, bias) && weight.dim() == 2 &&
         weight.size(1) % 8 == 0;
}

Tensor affine_gelu(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return AffineGelu::apply(x, weight, bias);
}

bool can_sum_rows(const Tensor& x) {
  return kernels::have_cuda_kernels() && is_dense(x) && x.dim() == 2 && x.size(1) % 8 == 0;
}

Tensor sum_rows(const Tensor& x) {
  c10::cuda::CUDAGuard guard(x.device());
  kernels::CudaActivation in{*number_of(x), x.size(0), x.size(1), stream_of(x)};
  Tensor sums = at::empty({x.size(1)}, x.options());
  kernels::column_sums(in, x.const_data_ptr(), sums.data_ptr(),
                       scratch(kernels::activation_workspace(in), x).data_ptr<float>());
  return sums;
}

bool can_split_heads(const Tensor& packed, int64_t heads) {
  return usable(packed) && packed.dim() == 3 && packed.size(2) % (3 * heads) == 0 &&
         packed.size(2) / (3 * heads) % 8 == 0;
}

std::array<Tensor, 3> split_heads(const Tensor& packed, int64_t heads) {
  variable_list out = SplitHeads::apply(packed, heads);
  return {out[0], out[1], out[2]};
}

bool can_affine_heads(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t heads) {
  return usable(x) && x.dim() == 3 && alike(x, weight) && bias.defined() && alike(x, bias) &&
         weight.dim() == 2 && weight.size(1) % (3 * heads) == 0 && weight.size(1) / (3 * heads) % 8 == 0 &&
         !takes_gradients(weight);
}

std::array<Tensor, 3> affine_heads(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t heads) {
  variable_list out = AffineHeads::apply(x, weight, bias, heads);
  return {out[0], out[1], out[2]};
}

}  // namespace yoke::compute::cuda
