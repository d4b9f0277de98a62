// Convolution with channels last: the patches of many images as the rows of one matrix, one product with the
// weight.
#include "yoke/compute/conv_ways.h"
#include "yoke/compute/parallel.h"
#include "yoke/kernels/activation.h"
#include "yoke/kernels/im2col.h"

namespace yoke::compute {
namespace {

using kernels::PatchShape;
using torch::Tensor;

constexpr int64_t kPatchBytes = 4 << 20;  // patches per batch, sized to stay in cache

PatchShape patches_of(const Tensor& x, const Tensor& weight, const ConvShape& shape) {
  PatchShape p;
  p.channels = x.size(1);
  p.height = x.size(2);
  p.width = x.size(3);
  p.kernel_height = weight.size(2);
  p.kernel_width = weight.size(3);
  p.stride_height = shape.stride[0];
  p.stride_width = shape.stride[1];
  p.padding_height = shape.padding[0];
  p.padding_width = shape.padding[1];
  p.out_height = (p.height + 2 * p.padding_height - p.kernel_height) / p.stride_height + 1;
  p.out_width = (p.width + 2 * p.padding_width - p.kernel_width) / p.stride_width + 1;
  return p;
}

bool patches_are_pixels(const PatchShape& p) {
  return p.taps() == 1 && p.stride_height == 1 && p.stride_width == 1 && p.padding_height == 0 &&
         p.padding_width == 0;
}

// An image batch with channels last as a matrix [pixels, channels], sharing memory.
Tensor pixel_rows(const Tensor& x) {
  return x.permute({0, 2, 3, 1}).view({-1, x.size(1)});
}

// Calls body(first image, last image) for groups whose patches fit into the cache.
template <class Body>
void for_image_groups(int64_t images, const PatchShape& p, Body body) {
  int64_t bytes = p.out_height * p.out_width * p.patch() * static_cast<int64_t>(sizeof(float));
  int64_t group =
      patches_are_pixels(p) ? images : std::max<int64_t>(1, kPatchBytes / std::max<int64_t>(bytes, 1));
  // Groups of equal size, so that the last product is not a thin one.
  int64_t groups = (images + group - 1) / group;
  for (int64_t i = 0; i < groups; ++i) body(i * images / groups, (i + 1) * images / groups);
}

// The patches [rows, channels * taps] of images [first, last).
Tensor patch_rows(const Tensor& x, const PatchShape& p, int64_t first, int64_t last) {
  int64_t pixels = p.out_height * p.out_width;
  if (patches_are_pixels(p)) return pixel_rows(x).slice(0, first * pixels, last * pixels);
  Tensor rows = at::empty({(last - first) * pixels, p.patch()}, x.options());
  const float* images = x.const_data_ptr<float>() + first * p.height * p.width * p.channels;
  float* to = rows.data_ptr<float>();
  parallel_for(last - first, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      kernels::image_to_patches(images + n * p.height * p.width * p.channels, to + n * pixels * p.patch(), p);
    }
  });
  return rows;
}

void add_bias_to(const Tensor& rows, const Tensor& bias) {
  float* to = rows.data_ptr<float>();
  int64_t width = rows.size(1);
  parallel_for(rows.size(0), [&](int64_t begin, int64_t end) {
    kernels::add_bias(to + begin * width, bias.const_data_ptr<float>(), end - begin, width, /*relu=*/false);
  });
}

void input_gradient(const Tensor& grad_rows, const Tensor& matrix, const Tensor& grad_x,
                    const PatchShape& p) {
  int64_t pixels = p.out_height * p.out_width;
  if (patches_are_pixels(p)) {
    Tensor out = pixel_rows(grad_x);
    at::mm_out(out, grad_rows, matrix);
    return;
  }
  for_image_groups(grad_x.size(0), p, [&](int64_t first, int64_t last) {
    Tensor rows = at::mm(grad_rows.slice(0, first * pixels, last * pixels), matrix);
    int64_t size = p.height * p.width * p.channels;
    float* images = grad_x.data_ptr<float>() + first * size;
    parallel_for(last - first, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        kernels::patches_to_image(rows.const_data_ptr<float>() + n * pixels * p.patch(), images + n * size,
                                  p);
      }
    });
  });
}

void weight_gradient(const Tensor& grad_rows, const Tensor& x, const Tensor& grad_matrix,
                     const PatchShape& p) {
  int64_t pixels = p.out_height * p.out_width;
  for_image_groups(x.size(0), p, [&](int64_t first, int64_t last) {
    Tensor patches = patch_rows(x, p, first, last);
    Tensor grad = grad_rows.slice(0, first * pixels, last * pixels).t();
    Tensor out = grad_matrix;
    if (first == 0) {
      at::mm_out(out, grad, patches);
    } else {
      out.addmm_(grad, patches);
    }
  });
}

}  // namespace

Tensor conv_channels_last(const Tensor& input, const Tensor& weight, const Tensor& bias,
                          const ConvShape& shape) {
  Tensor x = input.contiguous(at::MemoryFormat::ChannelsLast);
  PatchShape p = patches_of(x, weight, shape);
  int64_t pixels = p.out_height * p.out_width;
  Tensor y = at::empty({x.size(0), weight.size(0), p.out_height, p.out_width}, x.options(),
                       at::MemoryFormat::ChannelsLast);
  Tensor rows = pixel_rows(y);
  Tensor matrix = weight.view({weight.size(0), -1}).t();
  for_image_groups(x.size(0), p, [&](int64_t first, int64_t last) {
    Tensor out = rows.slice(0, first * pixels, last * pixels);
    at::mm_out(out, patch_rows(x, p, first, last), matrix);
  });
  if (bias.defined()) add_bias_to(rows, bias);
  return y;
}

ConvGradients conv_channels_last_backward(const Tensor& grad_output, const Tensor& input,
                                          const Tensor& weight, const ConvShape& shape, GradientMask mask) {
  Tensor x = input.contiguous(at::MemoryFormat::ChannelsLast);
  PatchShape p = patches_of(x, weight, shape);
  Tensor grad_rows = pixel_rows(grad_output.contiguous(at::MemoryFormat::ChannelsLast));
  ConvGradients grads;
  if (mask[0]) {
    grads.x = at::empty(x.sizes(), x.options(), at::MemoryFormat::ChannelsLast);
    input_gradient(grad_rows, weight.view({weight.size(0), -1}), grads.x, p);
  }
  if (mask[1]) {
    grads.weight = at::empty(weight.sizes(), weight.options());
    weight_gradient(grad_rows, x, grads.weight.view({weight.size(0), -1}), p);
  }
  if (mask[2]) grads.bias = at::sum(grad_rows, 0);
  return grads;
}

}  // namespace yoke::compute
