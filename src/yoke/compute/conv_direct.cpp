// Direct convolution of planes, for layers with few channels (kernels/conv_direct.h): one image per task.
#include "yoke/kernels/conv_direct.h"
#include "yoke/compute/conv_ways.h"
#include "yoke/compute/parallel.h"

namespace yoke::compute {
namespace {

using kernels::PlaneShape;
using torch::Tensor;

constexpr int64_t kMostWeights =
    1 << 14;  // beyond this the other ways win, and the sums no longer fit the cache

PlaneShape planes_of(const Tensor& x, const Tensor& weight, const ConvShape& shape) {
  return {.channels = x.size(1),
          .height = x.size(2),
          .width = x.size(3),
          .outputs = weight.size(0),
          .kernel_height = weight.size(2),
          .kernel_width = weight.size(3),
          .padding_height = shape.padding[0],
          .padding_width = shape.padding[1]};
}

// y = weight * x for every image.
void convolve_images(const float* x, const float* weight, const float* bias, float* y, int64_t images,
                     const PlaneShape& s) {
  int64_t in = s.channels * s.height * s.width;
  int64_t out = s.outputs * s.out_height() * s.out_width();
  parallel_for(images, [&](int64_t begin, int64_t end) {
    std::vector<float> padded(static_cast<size_t>(s.padded_size()));
    for (int64_t n = begin; n < end; ++n) {
      kernels::pad_planes(x + n * in, padded.data(), s);
      kernels::convolve_planes(padded.data(), weight, bias, y + n * out, s);
    }
  });
}

Tensor input_gradient(const Tensor& grad_y, const Tensor& x, const Tensor& weight, const PlaneShape& s) {
  std::vector<float> transposed(static_cast<size_t>(s.weights()));
  kernels::transpose_weight(weight.const_data_ptr<float>(), transposed.data(), s);
  Tensor grad_x = at::empty(x.sizes(), x.options());
  convolve_images(grad_y.const_data_ptr<float>(), transposed.data(), nullptr, grad_x.data_ptr<float>(),
                  x.size(0), s.transposed());
  return grad_x;
}

Tensor weight_gradient(const Tensor& grad_y, const Tensor& x, const Tensor& weight, const PlaneShape& s) {
  int64_t in = s.channels * s.height * s.width;
  int64_t out = s.outputs * s.out_height() * s.out_width();
  Tensor grad = at::zeros(weight.sizes(), weight.options());
  // Parts are added in order, so that a result depends on the number of threads only.
  std::vector<kernels::WeightGradient> parts(static_cast<size_t>(parallel_parts(x.size(0))),
                                             kernels::WeightGradient(s));
  parallel_for_parts(x.size(0), [&](int64_t part, int64_t begin, int64_t end) {
    std::vector<float> padded(static_cast<size_t>(s.padded_size()));
    for (int64_t n = begin; n < end; ++n) {
      kernels::pad_planes(x.const_data_ptr<float>() + n * in, padded.data(), s);
      parts[static_cast<size_t>(part)].add(padded.data(), grad_y.const_data_ptr<float>() + n * out);
    }
  });
  for (const kernels::WeightGradient& part : parts) part.add_to(grad.data_ptr<float>());
  return grad;
}

}  // namespace

bool conv_direct_possible(const Tensor& x, const Tensor& weight, const ConvShape& shape) {
  return x.is_contiguous() && shape.stride[0] == 1 && shape.stride[1] == 1 &&
         shape.padding[0] < weight.size(2) && shape.padding[1] < weight.size(3) &&
         weight.numel() <= kMostWeights;
}

Tensor conv_direct(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvShape& shape) {
  PlaneShape s = planes_of(x, weight, shape);
  Tensor y = at::empty({x.size(0), s.outputs, s.out_height(), s.out_width()}, x.options());
  convolve_images(x.const_data_ptr<float>(), weight.const_data_ptr<float>(),
                  bias.defined() ? bias.const_data_ptr<float>() : nullptr, y.data_ptr<float>(), x.size(0), s);
  return y;
}

ConvGradients conv_direct_backward(const Tensor& grad_output, const Tensor& x, const Tensor& weight,
                                   const ConvShape& shape, GradientMask mask) {
  PlaneShape s = planes_of(x, weight, shape);
  Tensor grad_y = grad_output.contiguous();
  ConvGradients grads;
  if (mask[0]) grads.x = input_gradient(grad_y, x, weight, s);
  if (mask[1]) grads.weight = weight_gradient(grad_y, x, weight, s);
  if (mask[2]) grads.bias = at::sum(grad_y, {0, 2, 3});
  return grads;
}

}  // namespace yoke::compute
