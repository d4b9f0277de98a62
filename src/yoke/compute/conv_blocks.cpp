#include "yoke/compute/conv_blocks.h"

namespace yoke::compute {
namespace {

using torch::Tensor;

constexpr int64_t kFewChannels = 4;
constexpr int64_t kLane = 8;  // channels that tensor cores process at once

int64_t rounded_up(int64_t size, int64_t multiple) {
  return (size + multiple - 1) / multiple * multiple;
}

// Blocks along one side of the input covered by `outputs` windows of `kernel` pixels.
int64_t blocks(int64_t size, int64_t kernel, int64_t stride, int64_t padding) {
  int64_t outputs = (size + 2 * padding - kernel) / stride + 1;
  return outputs - 1 + rounded_up(kernel, stride) / stride;
}

Tensor input_in_blocks(const Tensor& x, int64_t high, int64_t wide, int64_t stride, const ConvShape& shape) {
  int64_t top = shape.padding[0], left = shape.padding[1];
  Tensor padded =
      at::constant_pad_nd(x, {left, wide * stride - x.size(3) - left, top, high * stride - x.size(2) - top});
  Tensor pixels = padded.permute({0, 2, 3, 1});
  int64_t channels = x.size(1), depth = stride * stride * channels;
  Tensor out = at::empty({x.size(0), high, wide, rounded_up(depth, kLane)},
                         x.options().memory_format(at::MemoryFormat::Contiguous));
  out.narrow(3, depth, out.size(3) - depth).zero_();
  out.narrow(3, 0, depth)
      .unflatten(3, {stride, stride, channels})
      .copy_(pixels.reshape({x.size(0), high, stride, wide, stride, channels}).permute({0, 1, 3, 2, 4, 5}));
  return out.permute({0, 3, 1, 2});
}

Tensor weight_in_blocks(const Tensor& weight, int64_t stride) {
  int64_t high = rounded_up(weight.size(2), stride), wide = rounded_up(weight.size(3), stride);
  int64_t depth = stride * stride * weight.size(1);
  Tensor taps = at::constant_pad_nd(weight, {0, wide - weight.size(3), 0, high - weight.size(2)})
                    .reshape({weight.size(0), weight.size(1), high / stride, stride, wide / stride, stride})
                    .permute({0, 3, 5, 1, 2, 4})
                    .reshape({weight.size(0), depth, high / stride, wide / stride});
  return at::constant_pad_nd(taps, {0, 0, 0, 0, 0, rounded_up(depth, kLane) - depth})
      .contiguous(at::MemoryFormat::ChannelsLast);
}

}  // namespace

bool pays_in_blocks(const Tensor& x, const Tensor& weight, const ConvShape& shape) {
  return x.is_cuda() && x.dim() == 4 && x.numel() > 0 && x.size(1) <= kFewChannels && weight.dim() == 4 &&
         weight.size(1) == x.size(1) && shape.stride[0] == shape.stride[1] && shape.stride[0] > 1 &&
         !(x.requires_grad() && torch::GradMode::is_enabled()) &&
         x.is_contiguous(at::MemoryFormat::ChannelsLast) &&
         x.size(2) + 2 * shape.padding[0] >= weight.size(2) &&
         x.size(3) + 2 * shape.padding[1] >= weight.size(3);
}

Blocked in_blocks(const Tensor& x, const Tensor& weight, const ConvShape& shape) {
  int64_t stride = shape.stride[0];
  int64_t high = blocks(x.size(2), weight.size(2), stride, shape.padding[0]);
  int64_t wide = blocks(x.size(3), weight.size(3), stride, shape.padding[1]);
  return {input_in_blocks(x, high, wide, stride, shape), weight_in_blocks(weight, stride)};
}

}  // namespace yoke::compute
