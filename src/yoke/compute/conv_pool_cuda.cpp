#include <c10/cuda/CUDAGuard.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include "yoke/compute/conv_blocks.h"
#include "yoke/compute/deferred_gradients.h"
#include "yoke/compute/fast_path.h"
#include "yoke/compute/image_kernels.h"
#include "yoke/compute/image_tensors_cuda.h"
#include "yoke/compute/precision.h"
#include "yoke/compute/search_room_cuda.h"
#include "yoke/kernels/cuda/activation.h"
#include "yoke/kernels/cuda/have_kernels.h"
#include "yoke/kernels/cuda/pool.h"

namespace yoke::compute::cuda {
namespace {

using kernels::PoolShape;
using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Pooled {
  Tensor y, taps;
};

kernels::CudaPool describe(const Tensor& any, int64_t items, int64_t channels, const PoolShape& shape,
                           bool relu) {
  return {*number_of(any), items, channels, shape, relu, stream_of(any)};
}

Pooled pool_forward(const Tensor& x, const PoolShape& shape, bool relu) {
  std::array<int64_t, 4> sizes = {x.size(0), x.size(1), shape.out_height, shape.out_width};
  Pooled out{at::empty(sizes, x.options(), at::MemoryFormat::ChannelsLast),
             at::empty(sizes, x.options().dtype(torch::kByte), at::MemoryFormat::ChannelsLast)};
  kernels::max_pool(describe(x, x.size(0), x.size(1), shape, relu), x.const_data_ptr(), out.y.data_ptr(),
                    out.taps.data_ptr<uint8_t>());
  return out;
}

Tensor pool_backward(const Tensor& grad_y, const Tensor& taps, const PoolShape& shape) {
  std::array<int64_t, 4> sizes = {taps.size(0), taps.size(1), shape.height, shape.width};
  Tensor grad_x = at::empty(sizes, grad_y.options(), at::MemoryFormat::ChannelsLast);
  kernels::max_pool_backward(describe(grad_y, taps.size(0), taps.size(1), shape, /*relu=*/false),
                             grad_y.const_data_ptr(), taps.const_data_ptr<uint8_t>(), grad_x.data_ptr());
  return grad_x;
}

std::vector<int64_t> numbers_of(const PoolShape& s) {
  return {s.height, s.width, s.out_height, s.out_width, s.kernel, s.stride, s.padding};
}

PoolShape shape_of(const std::vector<int64_t>& v) {
  return {v[0], v[1], v[2], v[3], v[4], v[5], v[6]};
}

struct MaxPool : torch::autograd::Function<MaxPool> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const PoolShape& shape, bool relu) {
    c10::cuda::CUDAGuard guard(x.device());
    Pooled out = pool_forward(x, shape, relu);
    ctx->save_for_backward({out.taps});
    ctx->saved_data["shape"] = numbers_of(shape);
    return out.y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    require_first_derivative("max_pool2d");
    c10::cuda::CUDAGuard guard(grads[0].device());
    return {pool_backward(as_pixels(grads[0]), ctx->get_saved_variables()[0],
                          shape_of(ctx->saved_data["shape"].toIntVector())),
            Tensor(), Tensor()};
  }
};

struct MaskedGradient {
  Tensor y;     // where ReLU was active
  Tensor bias;  // its column sums
};

MaskedGradient relu_backward(const Tensor& grad_y, bool overwrite, const Tensor& y, const Tensor& bias) {
  kernels::CudaActivation in{*number_of(y), y.numel() / y.size(1), y.size(1), stream_of(y)};
  MaskedGradient out{overwrite ? grad_y : at::empty_like(y), at::empty_like(bias)};
  kernels::relu_backward(in, grad_y.const_data_ptr(), y.const_data_ptr(), out.y.data_ptr(),
                         out.bias.data_ptr(),
                         scratch(kernels::activation_workspace(in), y).data_ptr<float>());
  return out;
}

constexpr int64_t kLeastRoom = 64 << 20;

std::string name_of(const char* what, const Tensor& x, const Tensor& weight, const ConvShape& shape) {
  return fmt::format("{} {} {} {} {} {} {} {}", what, static_cast<int>(x.scalar_type()),
                     int{x.device().index()}, fmt::join(x.sizes(), "x"), fmt::join(weight.sizes(), "x"),
                     fmt::join(shape.stride, "x"), fmt::join(shape.padding, "x"),
                     at::globalContext().allowTF32CuDNN());
}

// The gradient of x will take as much as x does.
int64_t room_of(const Tensor& x, const Tensor& weight) {
  return static_cast<int64_t>(x.nbytes() + weight.nbytes()) + kLeastRoom;
}

// With `relu` also the bias.
Tensor convolve(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvShape& shape,
                bool relu) {
  Tensor y;
  within_search_room(name_of(relu ? "relu" : "forward", x, weight, shape), x, room_of(x, weight), [&] {
    y = relu ? at::cudnn_convolution_relu(x, weight, bias, shape.stride, shape.padding, {1, 1}, /*groups=*/1)
             : at::conv2d(x, weight, {}, shape.stride, shape.padding);
  });
  return y;
}

struct ConvPair {
  Tensor x, weight;
};

ConvPair convolve_backward(const Tensor& grad_y, const Tensor& x, const Tensor& weight,
                           const ConvShape& shape, std::array<bool, 2> wanted) {
  ConvPair grad;
  within_search_room(name_of(wanted[0] ? "both gradients" : "gradient", x, weight, shape), x,
                     room_of(x, weight), [&] {
                       auto [grad_x, grad_weight, none] = at::convolution_backward(
                           grad_y, x, weight, std::nullopt, shape.stride, shape.padding, {1, 1},
                           /*transposed=*/false, {0, 0}, /*groups=*/1, {wanted[0], wanted[1], false});
                       grad = {grad_x, grad_weight};
                     });
  return grad;
}

struct ConvRelu : torch::autograd::Function<ConvRelu> {
  // `pool` with kernel 0: no pooling.
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const ConvShape& shape, const PoolShape& pool) {
    c10::cuda::CUDAGuard guard(x.device());
    Tensor y, taps;
    if (pool.kernel == 0) {
      y = convolve(x, weight, bias, shape, /*relu=*/true);
    } else {
      Pooled out = pool_forward(as_pixels(convolve(x, weight, bias, shape, /*relu=*/false)), pool, false);
      kernels::CudaActivation in{*number_of(out.y), out.y.numel() / out.y.size(1), out.y.size(1),
                                 stream_of(x)};
      kernels::add_bias_relu(in, out.y.data_ptr(), bias.const_data_ptr());
      y = out.y;
      taps = out.taps;
    }
    ctx->save_for_backward({x, weight, bias, y, taps});
    ctx->saved_data["pool"] = numbers_of(pool);
    ctx->saved_data["shape"] =
        std::vector<int64_t>{shape.stride[0], shape.stride[1], shape.padding[0], shape.padding[1]};
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    require_first_derivative("conv2d");
    variable_list saved = ctx->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &bias = saved[2], &y = saved[3], &taps = saved[4];
    c10::cuda::CUDAGuard guard(x.device());
    const bool overwrite = is_last_owner(grads[0]);
    MaskedGradient masked = relu_backward(as_pixels(grads[0]), overwrite, as_pixels(y), bias);
    Tensor grad = taps.defined()
                      ? pool_backward(masked.y, taps, shape_of(ctx->saved_data["pool"].toIntVector()))
                      : masked.y;
    std::vector<int64_t> v = ctx->saved_data["shape"].toIntVector();
    ConvPair both = convolve_backward(grad, x, weight, ConvShape{{v[0], v[1]}, {v[2], v[3]}},
                                      {ctx->needs_input_grad(0), ctx->needs_input_grad(1)});
    return {both.x, both.weight, masked.bias, Tensor(), Tensor()};
  }
};

Tensor apply_conv_relu(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvShape& shape,
                       const PoolShape& pool) {
  Tensor input = as_autocast(x), filters = as_autocast(weight), added = as_autocast(bias);
  if (!pays_in_blocks(input, filters, shape)) return ConvRelu::apply(input, filters, added, shape, pool);
  Blocked blocked = in_blocks(input, filters, shape);
  return ConvRelu::apply(blocked.x, blocked.weight, added, ConvShape{}, pool);
}

}  // namespace

bool can_max_pool(const Tensor& x, const PoolShape& shape) {
  return kernels::have_cuda_kernels() && is_pixels(x) && shape.kernel * shape.kernel < kernels::kNoTap &&
         shape.padding * 2 <= shape.kernel && shape.stride > 0;
}

Tensor max_pool(const Tensor& x, const PoolShape& shape, bool relu) {
  return MaxPool::apply(x, shape, relu);
}

bool can_conv_relu(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (!kernels::have_cuda_kernels() || !x.is_cuda() || x.dim() != 4 || x.numel() == 0 || !bias.defined())
    return false;
  bool pixels = x.is_contiguous(at::MemoryFormat::ChannelsLast) && weight.dim() == 4 &&
                weight.is_contiguous(at::MemoryFormat::ChannelsLast) && weight.size(0) % 8 == 0;
  // A weight with a deferred gradient is handled by conv2d.
  return pixels && number_of(x) && number_of(weight) && !takes_gradients(weight) &&
         at::globalContext().userEnabledCuDNN();
}

Tensor conv_relu(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvShape& shape) {
  return apply_conv_relu(x, weight, bias, shape, PoolShape{.kernel = 0});
}

Tensor conv_relu_max_pool(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvShape& shape,
                          const PoolShape& pool) {
  return apply_conv_relu(x, weight, bias, shape, pool);
}

}  // namespace yoke::compute::cuda
