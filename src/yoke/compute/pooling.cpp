// Max pooling, alone or after ReLU, with the winning tap stored as a byte instead of an int64.
#include <torch/csrc/autograd/custom_function.h>

#include "yoke/compute/fast_path.h"
#include "yoke/compute/image_kernels.h"
#include "yoke/compute/interception.h"
#include "yoke/compute/layers.h"
#include "yoke/compute/parallel.h"
#include "yoke/kernels/pool.h"

namespace yoke::compute {
namespace {

using kernels::PoolShape;
using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// LibTorch's rounding: with ceil_mode the last window must start inside the input or its left padding.
int64_t pooled_size(int64_t size, const PoolShape& s, bool ceil_mode) {
  int64_t room = size + 2 * s.padding - s.kernel;
  if (room < 0) return 0;
  int64_t out = (room + (ceil_mode ? s.stride - 1 : 0)) / s.stride + 1;
  return ceil_mode && (out - 1) * s.stride >= size + s.padding ? out - 1 : out;
}

void run_forward(const Tensor& x, const Tensor& y, const Tensor& where, const PoolShape& s, bool pixels,
                 bool relu) {
  int64_t per_item = s.height * s.width * (pixels ? x.size(1) : 1);
  int64_t per_result = s.out_height * s.out_width * (pixels ? x.size(1) : 1);
  int64_t items = pixels ? x.size(0) : x.size(0) * x.size(1);
  parallel_for(items, [&](int64_t begin, int64_t end) {
    const float* from = x.const_data_ptr<float>() + begin * per_item;
    float* to = y.data_ptr<float>() + begin * per_result;
    uint8_t* taps = where.data_ptr<uint8_t>() + begin * per_result;
    if (pixels) {
      kernels::max_pool_pixels(from, to, taps, end - begin, x.size(1), s, relu);
    } else {
      kernels::max_pool_planes(from, to, taps, end - begin, s, relu);
    }
  });
}

void run_backward(const Tensor& grad_y, const Tensor& where, const Tensor& grad_x, const PoolShape& s,
                  bool pixels) {
  int64_t channels = grad_x.size(1);
  int64_t per_item = s.height * s.width * (pixels ? channels : 1);
  int64_t per_result = s.out_height * s.out_width * (pixels ? channels : 1);
  int64_t items = pixels ? grad_x.size(0) : grad_x.size(0) * channels;
  parallel_for(items, [&](int64_t begin, int64_t end) {
    const float* from = grad_y.const_data_ptr<float>() + begin * per_result;
    const uint8_t* taps = where.const_data_ptr<uint8_t>() + begin * per_result;
    float* to = grad_x.data_ptr<float>() + begin * per_item;
    if (pixels) {
      kernels::max_pool_pixels_backward(from, taps, to, end - begin, channels, s);
    } else {
      kernels::max_pool_planes_backward(from, taps, to, end - begin, s);
    }
  });
}

at::MemoryFormat memory_format(bool pixels) {
  return pixels ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
}

struct MaxPoolFunction : torch::autograd::Function<MaxPoolFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const PoolShape& shape, bool pixels,
                        bool relu) {
    std::array<int64_t, 4> sizes = {x.size(0), x.size(1), shape.out_height, shape.out_width};
    Tensor y = at::empty(sizes, x.options(), memory_format(pixels));
    Tensor where = at::empty(sizes, x.options().dtype(at::kByte), memory_format(pixels));
    run_forward(x, y, where, shape, pixels, relu);
    ctx->save_for_backward({where});
    ctx->saved_data["shape"] =
        std::vector<int64_t>{shape.height, shape.width,  shape.out_height, shape.out_width,
                             shape.kernel, shape.stride, shape.padding};
    ctx->saved_data["pixels"] = pixels;
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    require_first_derivative("max_pool2d");
    Tensor where = ctx->get_saved_variables()[0];
    std::vector<int64_t> v = ctx->saved_data["shape"].toIntVector();
    PoolShape shape{v[0], v[1], v[2], v[3], v[4], v[5], v[6]};
    bool pixels = ctx->saved_data["pixels"].toBool();
    Tensor grad_y = grads[0].contiguous(memory_format(pixels));
    Tensor grad_x = at::empty({where.size(0), where.size(1), shape.height, shape.width}, grad_y.options(),
                              memory_format(pixels));
    run_backward(grad_y, where, grad_x, shape, pixels);
    return {grad_x, Tensor(), Tensor(), Tensor()};
  }
};

// Sizes of the result for x [N, C, H, W].
PoolShape sized(PoolShape shape, int64_t height, int64_t width, bool ceil_mode) {
  shape.height = height;
  shape.width = width;
  shape.out_height = pooled_size(height, shape, ceil_mode);
  shape.out_width = pooled_size(width, shape, ceil_mode);
  TORCH_CHECK(shape.out_height > 0 && shape.out_width > 0, "max_pool2d: a ", shape.kernel, "x", shape.kernel,
              " window does not fit into an input of ", height, "x", width);
  return shape;
}

Tensor pool(const Tensor& x, const PoolShape& window, bool ceil_mode, bool relu_first) {
  if (cuda::can_max_pool(x, window))
    return cuda::max_pool(x, sized(window, x.size(2), x.size(3), ceil_mode), relu_first);
  bool candidate = plain_float(x) && x.dim() == 4 && x.numel() > 0 &&
                   window.kernel * window.kernel < kernels::kNoTap && window.padding * 2 <= window.kernel &&
                   window.stride > 0;
  ImageFormat format = candidate ? image_format(x) : ImageFormat::kOther;
  bool halves = window.kernel == 2 && window.stride == 2 && window.padding == 0 && !ceil_mode;
  if (format == ImageFormat::kOther || (format == ImageFormat::kPlanes && !halves)) {
    Tensor y = at::max_pool2d(x, {window.kernel, window.kernel}, {window.stride, window.stride},
                              {window.padding, window.padding}, {1, 1}, ceil_mode);
    // ReLU of the maximum is the maximum of ReLUs, on a quarter of the numbers.
    return relu_first ? at::relu(y) : y;
  }
  return MaxPoolFunction::apply(x, sized(window, x.size(2), x.size(3), ceil_mode),
                                format == ImageFormat::kPixels, relu_first);
}

int64_t convolved(int64_t size, int64_t kernel, int64_t stride, int64_t padding) {
  return (size + 2 * padding - kernel) / stride + 1;
}

}  // namespace

Tensor max_pool2d(const Tensor& x, int64_t kernel, int64_t stride, int64_t padding, bool ceil_mode) {
  return pool(x, {.kernel = kernel, .stride = stride, .padding = padding}, ceil_mode, /*relu_first=*/false);
}

Tensor relu_max_pool2d(const Tensor& x, int64_t kernel, int64_t stride, int64_t padding, bool ceil_mode) {
  return pool(x, {.kernel = kernel, .stride = stride, .padding = padding}, ceil_mode, /*relu_first=*/true);
}

Tensor conv2d_relu(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvShape& shape) {
  if (shape.groups == 1 && !is_intercepted(weight) && cuda::can_conv_relu(x, weight, bias))
    return cuda::conv_relu(x, weight, bias, shape);
  return compute::relu(conv2d(x, weight, bias, shape));
}

Tensor conv2d_relu_max_pool2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                              const ConvShape& shape, int64_t kernel, int64_t stride) {
  if (shape.groups != 1 || is_intercepted(weight) || !cuda::can_conv_relu(x, weight, bias))
    return relu_max_pool2d(conv2d(x, weight, bias, shape), kernel, stride);
  int64_t height = convolved(x.size(2), weight.size(2), shape.stride[0], shape.padding[0]);
  int64_t width = convolved(x.size(3), weight.size(3), shape.stride[1], shape.padding[1]);
  PoolShape window{.kernel = kernel, .stride = stride, .padding = 0};
  return cuda::conv_relu_max_pool(x, weight, bias, shape, sized(window, height, width, /*ceil_mode=*/false));
}

}  // namespace yoke::compute
