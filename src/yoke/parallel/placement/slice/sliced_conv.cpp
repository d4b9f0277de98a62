#include <torch/csrc/autograd/custom_function.h>

#include <numeric>

#include "yoke/base/error.h"
#include "yoke/comm/tensors/tensors.h"
#include "yoke/compute/layers.h"
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

Tensor convolve(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias,
                const SlicedConvShape& s) {
  bool plain = s.groups == 1 && s.dilation == std::vector<int64_t>{1, 1};
  if (!plain) return at::conv2d(x, weight, bias, s.stride, s.padding, s.dilation, s.groups);
  return compute::conv2d(x, weight, bias.value_or(Tensor()),
                         {{s.stride[0], s.stride[1]}, {s.padding[0], s.padding[1]}});
}

struct ColumnConv : Function<ColumnConv> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight,
                        const std::optional<Tensor>& bias, const SlicedWeightRef& slice,
                        const SlicedConvShape& shape) {
    ctx->save_for_backward({x, weight});
    ctx->saved_data["bias"] = bias.has_value();
    ctx->saved_data["slice"] = to_value(slice);
    ctx->saved_data["stride"] = shape.stride;
    ctx->saved_data["padding"] = shape.padding;
    ctx->saved_data["dilation"] = shape.dilation;
    ctx->saved_data["groups"] = shape.groups;
    return convolve(x, weight, bias, shape);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    variable_list saved = ctx->get_saved_variables();
    SlicedWeightRef slice = from_value(ctx->saved_data["slice"]);
    auto numbers = [&](const char* key) { return ctx->saved_data[key].toIntVector(); };
    SlicedConvShape s{numbers("stride"), numbers("padding"), numbers("dilation"),
                      ctx->saved_data["groups"].toInt()};
    auto gradients = [&](std::array<bool, 3> mask) {
      return at::convolution_backward(grads[0], saved[0], saved[1], std::vector<int64_t>{saved[1].size(0)},
                                      s.stride, s.padding, s.dilation, false, {0, 0}, s.groups, mask);
    };
    bool of_bias = ctx->saved_data["bias"].toBool() && ctx->needs_input_grad(2);
    std::function<Tensor()> of_input = [] { return Tensor(); };
    if (ctx->needs_input_grad(0))
      of_input =
          slice->axis->begin_leave(std::get<0>(gradients({true, false, false})), slice->gradient_name());
    auto [none, weight, bias] = gradients({false, ctx->needs_input_grad(1), of_bias});
    return {of_input(), weight, bias, Tensor(), Tensor()};
  }
};

// The sum over ranks of a row layer's outputs, and its bias.
struct SumOfSlices : Function<SumOfSlices> {
  static Tensor forward(AutogradContext* ctx, const Tensor& y, const std::optional<Tensor>& bias,
                        const SlicedWeightRef& slice) {
    ctx->saved_data["bias"] = bias.has_value();
    Tensor sum = slice->axis->leave(y.clone(at::MemoryFormat::Contiguous), slice->layer());
    if (bias) sum.add_(bias->view({1, -1, 1, 1}));
    return sum;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    Tensor of_bias;
    if (ctx->saved_data["bias"].toBool() && ctx->needs_input_grad(1)) of_bias = grads[0].sum({0, 2, 3});
    return {grads[0], of_bias, Tensor()};
  }
};

struct GatherFeatures : Function<GatherFeatures> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const SlicedWeightRef& slice,
                        const std::vector<int64_t>& sizes) {
    int rank = slice->axis->rank();
    ctx->saved_data["begin"] = std::accumulate(sizes.begin(), sizes.begin() + rank, int64_t{0});
    ctx->saved_data["size"] = x.size(1);
    return slice->axis->gather_features(x, sizes, slice->layer());
  }

  // The layer behind has summed the gradient over ranks.
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    return {grads[0].narrow(1, ctx->saved_data["begin"].toInt(), ctx->saved_data["size"].toInt()), Tensor(),
            Tensor()};
  }
};

}  // namespace

Tensor gathered(const SlicedWeightRef& slice, const Tensor& x) {
  int64_t own = slice->input_sizes[static_cast<size_t>(slice->axis->rank())];
  int64_t each = x.size(1) / own;  // features of a unit: pixels of a channel after flattening
  if (each * own != x.size(1))
    throw ConfigError("tensor plan: layer '{}' gathers slices of {} units, and {} features come",
                      slice->layer(), own, x.size(1));
  std::vector<int64_t> sizes = slice->input_sizes;
  for (int64_t& size : sizes) size *= each;
  return GatherFeatures::apply(x, slice, sizes);
}

Tensor sliced_conv2d(const SlicedWeightRef& slice, const Tensor& x, const Tensor& bias,
                     const SlicedConvShape& whole) {
  SlicedConvShape shape = whole;
  if (slice->cut.cut == TensorCut::kChannelsGrouped) shape.groups = whole.groups / slice->axis->size();
  Tensor input = slice->cut.gathered ? gathered(slice, x) : x;
  const Tensor& weight = slice->weight;
  if (input.dim() != 4 || input.size(1) != weight.size(1) * shape.groups)
    throw ConfigError("tensor plan: layer '{}' ({}) takes {} channels here, and {} come", slice->layer(),
                      plan::to_string(plan::TensorHow{.cut = slice->cut.cut}), weight.size(1) * shape.groups,
                      input.size(1));
  slice->used = true;
  bool rows = slice->cut.cut == TensorCut::kChannelsIn;
  set_region(rows ? nullptr : slice->axis);
  std::optional<Tensor> b = bias.defined() ? std::optional(as_autocast(bias)) : std::nullopt;
  if (rows) return SumOfSlices::apply(convolve(input, weight, {}, shape), b, slice);
  if (slice->cut.cut == TensorCut::kChannelsGrouped) return convolve(input, weight, b, shape);
  return ColumnConv::apply(as_autocast(input), as_autocast(weight), b, slice, shape);
}

}  // namespace yoke::parallel
