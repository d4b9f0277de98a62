#include <torch/csrc/autograd/custom_function.h>

#include "yoke/base/error.h"
#include "yoke/compute/deferred_gradients.h"
#include "yoke/compute/gradient_home.h"
#include "yoke/compute/precision.h"
#include "yoke/parallel/placement/slice/region.h"
#include "yoke/parallel/placement/slice/sliced_layers.h"

namespace yoke::parallel {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

using plan::TensorCut;

Tensor product(const Tensor& x, const Tensor& weight, const Tensor& bias, bool as_linear) {
  return at::linear(x, as_linear ? weight : weight.t(),
                    bias.defined() ? std::optional<Tensor>(bias) : std::nullopt);
}

Tensor as_rows(const Tensor& x) {
  return x.dim() == 2 ? x : x.reshape({-1, x.size(-1)});
}

// Undefined where somebody else takes it.
Tensor weight_gradient(const Tensor& weight, const Tensor& x, const Tensor& grad, bool as_linear) {
  Tensor left = as_linear ? grad.t() : x.t(), right = as_linear ? x : grad;
  auto add = [weight, left, right] { compute::add_product_to_gradient(weight, left, right); };
  if (compute::take_gradient(weight, add)) return {};
  Tensor home = compute::gradient_home(weight);
  if (!home.defined()) return at::mm(left, right);
  at::mm_out(home, left, right);
  return home;
}

Tensor input_gradient(const Tensor& weight, const Tensor& grad, const Tensor& like, bool as_linear) {
  std::vector<int64_t> shape = like.sizes().vec();
  return at::mm(grad, as_linear ? weight : weight.t()).view(shape);
}

struct ColumnLinear : Function<ColumnLinear> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight,
                        const std::optional<Tensor>& bias, const SlicedWeightRef& slice, bool as_linear) {
    Tensor whole = slice->axis->enter(x, slice->layer());
    ctx->save_for_backward({whole, weight});
    ctx->saved_data["bias"] = bias.has_value();
    ctx->saved_data["as_linear"] = as_linear;
    ctx->saved_data["slice"] = to_value(slice);
    return product(whole, weight, bias.value_or(Tensor()), as_linear);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    variable_list saved = ctx->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1];
    bool as_linear = ctx->saved_data["as_linear"].toBool();
    SlicedWeightRef slice = from_value(ctx->saved_data["slice"]);
    Tensor grad = as_rows(grads[0]);
    std::function<Tensor()> of_input = [] { return Tensor(); };
    if (ctx->needs_input_grad(0))
      of_input = slice->axis->begin_leave(input_gradient(weight, grad, x, as_linear), slice->gradient_name());
    Tensor of_weight, of_bias;
    if (ctx->needs_input_grad(1)) of_weight = weight_gradient(weight, as_rows(x), grad, as_linear);
    if (ctx->saved_data["bias"].toBool() && ctx->needs_input_grad(2)) of_bias = grad.sum(0);
    return {of_input(), of_weight, of_bias, Tensor(), Tensor()};
  }
};

struct RowLinear : Function<RowLinear> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight,
                        const std::optional<Tensor>& bias, const SlicedWeightRef& slice, bool as_linear) {
    ctx->save_for_backward({x, weight});
    ctx->saved_data["bias"] = bias.has_value();
    ctx->saved_data["as_linear"] = as_linear;
    ctx->saved_data["slice"] = to_value(slice);
    Tensor sum = slice->axis->leave(product(x, weight, {}, as_linear), slice->layer());
    if (bias) sum.add_(*bias);
    return sum;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    variable_list saved = ctx->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1];
    bool as_linear = ctx->saved_data["as_linear"].toBool();
    SlicedWeightRef slice = from_value(ctx->saved_data["slice"]);
    Tensor of_input, of_weight, of_bias;
    if (ctx->saved_data["bias"].toBool() && ctx->needs_input_grad(2)) of_bias = as_rows(grads[0]).sum(0);
    Tensor grad = as_rows(slice->axis->enter(grads[0], slice->gradient_name()));
    if (ctx->needs_input_grad(0)) of_input = input_gradient(weight, grad, x, as_linear);
    if (ctx->needs_input_grad(1)) of_weight = weight_gradient(weight, as_rows(x), grad, as_linear);
    return {of_input, of_weight, of_bias, Tensor(), Tensor()};
  }
};

}  // namespace

Tensor sliced_linear(const SlicedWeightRef& slice, const Tensor& x, const Tensor& bias, bool as_linear) {
  const Tensor& weight = slice->weight;
  bool rows = slice->cut.cut == TensorCut::kRows;
  int64_t in = weight.size(as_linear ? 1 : 0);
  Tensor input = slice->cut.gathered ? gathered(slice, x) : x;
  if (input.size(-1) != in)
    throw ConfigError("tensor plan: layer '{}' ({}) takes {} features here, and {} come. Hint: {}.",
                      slice->layer(), plan::to_string(plan::TensorHow{.cut = slice->cut.cut}), in,
                      input.size(-1),
                      rows ? "the layer before it must be cut by columns"
                           : "the layer before it must not be cut by columns");
  slice->used = true;
  input = as_autocast(input);
  Tensor w = as_autocast(weight);
  std::optional<Tensor> b = bias.defined() ? std::optional(as_autocast(bias)) : std::nullopt;
  bool outside = rows && !slice->axis->sequence();
  set_region(outside ? nullptr : slice->axis);
  return rows ? RowLinear::apply(input, w, b, slice, as_linear)
              : ColumnLinear::apply(input, w, b, slice, as_linear);
}

}  // namespace yoke::parallel
