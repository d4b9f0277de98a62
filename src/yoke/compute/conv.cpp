// conv2d: the differentiable function over the paths of conv_ways.h, selected per layer by conv_path.h.
#include <ATen/Parallel.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/custom_function.h>

#include "yoke/compute/conv_blocks.h"
#include "yoke/compute/conv_ways.h"
#include "yoke/compute/deferred_gradients.h"
#include "yoke/compute/fast_path.h"
#include "yoke/compute/interception.h"
#include "yoke/compute/layers.h"

namespace yoke::compute {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::optional<Tensor> present(const Tensor& t) {
  return t.defined() ? std::optional(t) : std::nullopt;
}

Tensor run_forward(ConvPath path, const Tensor& x, const Tensor& weight, const Tensor& bias,
                   const ConvShape& s) {
  switch (path) {
    case ConvPath::kNative:
      return at::_slow_conv2d_forward(x.contiguous(), weight, {weight.size(2), weight.size(3)}, present(bias),
                                      s.stride, s.padding);
    case ConvPath::kChannelsLast:
      return conv_channels_last(x, weight, bias, s);
    case ConvPath::kDirect:
      return conv_direct(x, weight, bias, s);
    case ConvPath::kOneDnn:
      break;
  }
  return at::conv2d(x, weight, present(bias), s.stride, s.padding);
}

ConvGradients run_backward(ConvPath path, const Tensor& grad_y, const Tensor& x, const Tensor& weight,
                           const ConvShape& s, GradientMask mask) {
  switch (path) {
    case ConvPath::kNative: {
      auto [gx, gw, gb] = at::_slow_conv2d_backward(grad_y.contiguous(), x.contiguous(), weight,
                                                    {weight.size(2), weight.size(3)}, s.stride, s.padding,
                                                    {mask[0], mask[1], false});
      Tensor bias = mask[2] ? at::sum(grad_y, {0, 2, 3}) : Tensor();
      return {gx, gw, bias};
    }
    case ConvPath::kChannelsLast:
      return conv_channels_last_backward(grad_y, x, weight, s, mask);
    case ConvPath::kDirect:
      return conv_direct_backward(grad_y, x, weight, s, mask);
    case ConvPath::kOneDnn:
      break;
  }
  auto [gx, gw, gb] = at::convolution_backward(grad_y, x, weight, std::vector<int64_t>{weight.size(0)},
                                               s.stride, s.padding, {1, 1}, false, {0, 0}, 1, mask);
  return {gx, gw, gb};
}

const char* format_name(const Tensor& t) {
  ImageFormat format = image_format(t);
  return format == ImageFormat::kPlanes ? "planes" : format == ImageFormat::kPixels ? "pixels" : "other";
}

ConvOperation describe(std::string what, const Tensor& x, const Tensor& weight, const ConvShape& s) {
  return {std::move(what), x.size(0),
          fmt::format("{} {} weight {} stride {}x{} padding {}x{} float32 threads {}",
                      fmt::join(x.sizes().slice(1), "x"), format_name(x), fmt::join(weight.sizes(), "x"),
                      s.stride[0], s.stride[1], s.padding[0], s.padding[1], at::get_num_threads())};
}

std::vector<ConvPath> candidates_for(const Tensor& x, const Tensor& weight, const ConvShape& s) {
  if (!plain_floats(x, weight)) return {ConvPath::kOneDnn};
  std::vector<ConvPath> paths = {ConvPath::kOneDnn, ConvPath::kChannelsLast};
  // Strides of size-1 dims can read as either format, and LibTorch's native path then trips over its own
  // gradient.
  auto planes = [](const Tensor& t) { return t.suggest_memory_format() == at::MemoryFormat::Contiguous; };
  if (image_format(x) == ImageFormat::kPlanes && planes(x) && planes(weight))
    paths.push_back(ConvPath::kNative);
  if (conv_direct_possible(x, weight, s)) paths.push_back(ConvPath::kDirect);
  return paths;
}

struct ConvFunction : torch::autograd::Function<ConvFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight,
                        const std::optional<Tensor>& maybe_bias, const ConvShape& shape) {
    Tensor bias = maybe_bias.value_or(Tensor());
    auto measured = [&](ConvPath path) { run_forward(path, x, weight, bias, shape); };
    ConvPath path = ConvChoices::global().choose(describe("forward", x, weight, shape),
                                                 candidates_for(x, weight, shape), measured);
    ctx->save_for_backward({x, weight});
    ctx->saved_data["bias"] = bias.defined();
    ctx->saved_data["shape"] =
        std::vector<int64_t>{shape.stride[0], shape.stride[1], shape.padding[0], shape.padding[1]};
    return run_forward(path, x, weight, bias, shape);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    require_first_derivative("conv2d");
    variable_list saved = ctx->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &grad_y = grads[0];
    std::vector<int64_t> v = ctx->saved_data["shape"].toIntVector();
    ConvShape shape{{v[0], v[1]}, {v[2], v[3]}};
    GradientMask mask = {ctx->needs_input_grad(0), ctx->needs_input_grad(1),
                         ctx->saved_data["bias"].toBool() && ctx->needs_input_grad(2)};
    auto add = [x, weight, grad_y, shape] {
      add_to_gradient(weight, fastest_backward(grad_y, x, weight, shape, {false, true, false}).weight);
    };
    // Both gradients together are faster if nothing is deferred.
    if (mask[1] && !takes_at_once() && take_gradient(weight, add)) mask[1] = false;
    ConvGradients g = fastest_backward(grad_y, x, weight, shape, mask);
    return {g.x, g.weight, g.bias, Tensor()};
  }

  static ConvGradients fastest_backward(const Tensor& grad_y, const Tensor& x, const Tensor& weight,
                                        const ConvShape& shape, GradientMask mask) {
    if (!mask[0] && !mask[1] && !mask[2]) return {};
    std::string what =
        fmt::format("backward {}{}{} of {}", int{mask[0]}, int{mask[1]}, int{mask[2]}, format_name(grad_y));
    auto measured = [&](ConvPath path) { run_backward(path, grad_y, x, weight, shape, mask); };
    ConvPath path = ConvChoices::global().choose(describe(what, x, weight, shape),
                                                 candidates_for(x, weight, shape), measured);
    return run_backward(path, grad_y, x, weight, shape, mask);
  }
};

}  // namespace

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvShape& shape) {
  if (shape.groups != 1 || is_intercepted(weight))
    return at::conv2d(x, weight, present(bias), shape.stride, shape.padding, /*dilation=*/1, shape.groups);
  if (pays_in_blocks(x, weight, shape) && !takes_gradients(weight)) {
    Blocked blocked = in_blocks(x, weight, shape);
    return at::conv2d(blocked.x, blocked.weight, present(bias));
  }
  bool fast = plain_floats(x, weight) && x.dim() == 4 && x.numel() > 0 && weight.dim() == 4 &&
              weight.is_contiguous() && x.size(1) == weight.size(1) &&
              image_format(x) != ImageFormat::kOther && (!bias.defined() || plain_float(bias)) &&
              x.size(2) + 2 * shape.padding[0] >= weight.size(2) &&
              x.size(3) + 2 * shape.padding[1] >= weight.size(3);
  // Other formats need our own function only if weight gradients are deferred.
  if (!fast && !(takes_gradients(weight) && !takes_at_once() && x.dim() == 4))
    return at::conv2d(x, weight, present(bias), shape.stride, shape.padding);
  return ConvFunction::apply(x, weight, present(bias), shape);
}

}  // namespace yoke::compute
