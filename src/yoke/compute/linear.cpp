// Linear layers with their activation: the product by LibTorch's BLAS, bias and activation in one pass.
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "yoke/compute/affine.h"
#include "yoke/compute/deferred_gradients.h"
#include "yoke/compute/fast_path.h"
#include "yoke/compute/gradient_home.h"
#include "yoke/compute/interception.h"
#include "yoke/compute/layers.h"
#include "yoke/compute/parallel.h"
#include "yoke/compute/token_kernels.h"
#include "yoke/kernels/activation.h"

namespace yoke::compute {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

enum class Activation : int64_t { kNone, kRelu, kGelu };

const float* data_or_null(const Tensor& t) {
  return t.defined() ? t.const_data_ptr<float>() : nullptr;
}

void add_bias_to_rows(const Tensor& z, const Tensor& bias, bool relu) {
  int64_t width = z.size(1);
  float* to = z.data_ptr<float>();
  const float* from = bias.const_data_ptr<float>();
  parallel_for(z.size(0), z.numel(), [&](int64_t begin, int64_t end) {
    kernels::add_bias(to + begin * width, from, end - begin, width, relu);
  });
}

// z becomes the value before the activation, which GELU's gradient needs.
Tensor gelu_of_rows(const Tensor& z, const Tensor& bias) {
  Tensor y = at::empty_like(z);
  int64_t width = z.size(1);
  float* before = z.data_ptr<float>();
  float* after = y.data_ptr<float>();
  const float* shift = data_or_null(bias);
  parallel_for(z.size(0), z.numel(), [&](int64_t begin, int64_t end) {
    int64_t at = begin * width;
    if (shift == nullptr) {
      kernels::gelu(before + at, after + at, (end - begin) * width);
    } else {
      kernels::bias_gelu(before + at, shift, after + at, end - begin, width);
    }
  });
  return y;
}

Tensor sum_of_rows(const Tensor& x) {
  Tensor sums = at::empty({x.size(1)}, x.options());
  int64_t width = x.size(1);
  constexpr int64_t kColumns = 64;
  parallel_for((width + kColumns - 1) / kColumns, x.numel(), [&](int64_t begin, int64_t end) {
    int64_t first = begin * kColumns;
    int64_t last = std::min(end * kColumns, width);
    kernels::column_sums(x.const_data_ptr<float>() + first, sums.data_ptr<float>() + first, x.size(0),
                         last - first, width);
  });
  return sums;
}

Tensor before_activation(const Tensor& grad_y, const Tensor& saved, Activation activation) {
  Tensor grad = at::empty_like(saved);
  const float* from = grad_y.const_data_ptr<float>();
  const float* kept = saved.const_data_ptr<float>();
  float* to = grad.data_ptr<float>();
  auto kernel = activation == Activation::kRelu ? kernels::relu_backward : kernels::gelu_backward;
  parallel_for(saved.numel(), saved.numel(), [&](int64_t begin, int64_t end) {
    kernel(kept + begin, from + begin, to + begin, end - begin);
  });
  return grad;
}

// left * right, if the gradient of `weight` is needed.
Tensor weight_gradient(const Tensor& weight, const Tensor& left, const Tensor& right) {
  Tensor home = gradient_home(weight);
  if (!home.defined()) return at::mm(left, right);
  at::mm_out(home, left, right);
  return home;
}

// x [rows, in]; matrix [in, out] is the weight or its transposed view.
struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight,
                        const std::optional<Tensor>& maybe_bias, bool transposed, int64_t activation_code) {
    Tensor bias = maybe_bias.value_or(Tensor());
    auto activation = static_cast<Activation>(activation_code);
    Tensor z = at::mm(x, transposed ? weight : weight.t());
    Tensor y = z;
    Tensor kept;
    if (activation == Activation::kGelu) {
      y = gelu_of_rows(z, bias);
      kept = z;
    } else if (bias.defined()) {
      add_bias_to_rows(z, bias, activation == Activation::kRelu);
    } else if (activation == Activation::kRelu) {
      z.relu_();
    }
    if (activation == Activation::kRelu) kept = y;
    ctx->save_for_backward({x, weight, kept});
    ctx->saved_data["bias"] = bias.defined();
    ctx->saved_data["transposed"] = transposed;
    ctx->saved_data["activation"] = activation_code;
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    require_first_derivative("linear");
    variable_list saved = ctx->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &kept = saved[2];
    auto activation = static_cast<Activation>(ctx->saved_data["activation"].toInt());
    bool transposed = ctx->saved_data["transposed"].toBool();
    Tensor grad = grads[0].contiguous();
    if (activation != Activation::kNone) grad = before_activation(grad, kept, activation);
    Tensor grad_x, grad_weight, grad_bias;
    Tensor left = transposed ? x.t() : grad.t(), right = transposed ? grad : x;
    auto add = [weight, left, right] { add_product_to_gradient(weight, left, right); };
    if (ctx->needs_input_grad(1) && !take_gradient(weight, add))
      grad_weight = weight_gradient(weight, left, right);
    if (ctx->saved_data["bias"].toBool() && ctx->needs_input_grad(2)) grad_bias = sum_of_rows(grad);
    if (ctx->needs_input_grad(0)) grad_x = at::mm(grad, transposed ? weight.t() : weight);
    return {grad_x, grad_weight, grad_bias, Tensor(), Tensor()};
  }
};

// Linear layers of any type, for deferred weight gradients.
struct SplitLinear : torch::autograd::Function<SplitLinear> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight, bool transposed) {
    ctx->save_for_backward({x, weight});
    ctx->saved_data["transposed"] = transposed;
    return at::matmul(x, transposed ? weight : weight.t());
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    variable_list saved = ctx->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &grad = grads[0];
    bool transposed = ctx->saved_data["transposed"].toBool();
    Tensor rows = x.reshape({-1, x.size(-1)}), back = grad.reshape({-1, grad.size(-1)});
    Tensor left = transposed ? rows.t() : back.t(), right = transposed ? back : rows;
    auto add = [weight, left, right] { add_product_to_gradient(weight, left, right); };
    Tensor grad_x, grad_weight;
    if (ctx->needs_input_grad(1) && !take_gradient(weight, add)) grad_weight = at::mm(left, right);
    if (ctx->needs_input_grad(0)) grad_x = at::matmul(grad, transposed ? weight.t() : weight);
    return {grad_x, grad_weight, Tensor()};
  }
};

Tensor activated(const Tensor& y, Activation activation) {
  if (activation == Activation::kRelu) return at::relu(y);
  return activation == Activation::kGelu ? gelu_tanh(y) : y;
}

Tensor dense(const Tensor& x, const Tensor& weight, const Tensor& bias, bool transposed,
             Activation activation) {
  if (is_intercepted(weight))
    return activated(at::linear(x, transposed ? weight.t() : weight, bias), activation);
  bool fast = plain_floats(x, weight) && weight.is_contiguous() && x.numel() > 0 &&
              (!bias.defined() || (plain_float(bias) && bias.is_contiguous()));
  bool plain_cuda = x.is_cuda() && x.scalar_type() == weight.scalar_type() && bias.defined();
  if (!fast && takes_gradients(weight) && x.scalar_type() == weight.scalar_type()) {
    Tensor y = SplitLinear::apply(x, weight, transposed);
    return activated(bias.defined() ? y + bias : y, activation);
  }
  if (transposed && activation == Activation::kGelu && cuda::can_affine_gelu(x, weight, bias))
    return cuda::affine_gelu(x, weight, bias);
  if (!fast && transposed && plain_cuda) return activated(affine(x, weight, bias), activation);
  if (!fast) return activated(at::linear(x, transposed ? weight.t() : weight, bias), activation);
  int64_t out = weight.size(transposed ? 1 : 0);
  std::vector<int64_t> shape = x.sizes().vec();
  int64_t in = shape.back();
  shape.back() = out;
  Tensor rows = x.dim() == 2 && x.is_contiguous() ? x : x.reshape({-1, in});
  Tensor y = LinearFunction::apply(rows, weight, bias.defined() ? std::optional(bias) : std::nullopt,
                                   transposed, static_cast<int64_t>(activation));
  return x.dim() == 2 ? y : y.view(shape);
}

struct GeluFunction : torch::autograd::Function<GeluFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x) {
    ctx->save_for_backward({x});
    Tensor y = at::empty_like(x);
    const float* from = x.const_data_ptr<float>();
    float* to = y.data_ptr<float>();
    parallel_for(x.numel(), x.numel(),
                 [&](int64_t begin, int64_t end) { kernels::gelu(from + begin, to + begin, end - begin); });
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    require_first_derivative("gelu_tanh");
    return {before_activation(grads[0].contiguous(), ctx->get_saved_variables()[0], Activation::kGelu)};
  }
};

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return dense(x, weight, bias, /*transposed=*/false, Activation::kNone);
}

Tensor linear_relu(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return dense(x, weight, bias, /*transposed=*/false, Activation::kRelu);
}

Tensor linear_gelu(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return dense(x, weight, bias, /*transposed=*/false, Activation::kGelu);
}

Tensor linear_transposed(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return dense(x, weight, bias, /*transposed=*/true, Activation::kNone);
}

Tensor linear_transposed_add(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& added) {
  bool in_one_pass = x.is_cuda() && !is_intercepted(weight) && x.scalar_type() == weight.scalar_type() &&
                     x.scalar_type() == added.scalar_type() && bias.defined() && !takes_gradients(weight) &&
                     !at::autocast::is_autocast_enabled(at::kCUDA);
  return in_one_pass ? affine(x, weight, bias, added) : added + linear_transposed(x, weight, bias);
}

Tensor linear_transposed_gelu(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return dense(x, weight, bias, /*transposed=*/true, Activation::kGelu);
}

Tensor gelu_tanh(const Tensor& x) {
  if (!plain_float(x) || !x.is_contiguous()) return at::gelu(x, "tanh");
  return GeluFunction::apply(x);
}

}  // namespace yoke::compute
