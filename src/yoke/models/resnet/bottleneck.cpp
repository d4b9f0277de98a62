#include "yoke/models/resnet/bottleneck.h"

#include "yoke/compute/layers.h"

namespace yoke::models {

Bottleneck::Bottleneck(int64_t in, int64_t width, int64_t stride) {
  using torch::nn::BatchNorm2dImpl;
  int64_t out = kWidening * width;
  ConvOptions point{.bias = false};
  ConvOptions strided_point{.stride = {stride, stride}, .bias = false};
  conv1_ = add<Conv2d>(*this, "conv1", in, width, point);
  bn1_ = add<BatchNorm2dImpl>(*this, "bn1", width);
  conv2_ = add<Conv2d>(
      *this, "conv2", width, width,
      ConvOptions{.kernel = {3, 3}, .stride = {stride, stride}, .padding = {1, 1}, .bias = false});
  bn2_ = add<BatchNorm2dImpl>(*this, "bn2", width);
  conv3_ = add<Conv2d>(*this, "conv3", width, out, point);
  bn3_ = add<BatchNorm2dImpl>(*this, "bn3", out);
  if (stride == 1 && in == out) return;
  shortcut_ = add<Conv2d>(*this, "downsample.0", in, out, strided_point);
  shortcut_bn_ = add<BatchNorm2dImpl>(*this, "downsample.1", out);
}

torch::Tensor Bottleneck::forward(const torch::Tensor& x) const {
  torch::Tensor y = compute::batch_norm_relu(*bn1_, conv1_->forward(x));
  y = compute::batch_norm_relu(*bn2_, conv2_->forward(y));
  y = conv3_->forward(y);
  torch::Tensor shortcut = shortcut_ ? compute::batch_norm(*shortcut_bn_, shortcut_->forward(x)) : x;
  return compute::batch_norm_add_relu(*bn3_, y, shortcut);
}

int64_t Bottleneck::multiply_adds(int64_t side) const {
  int64_t count =
      conv1_->multiply_adds(side) + conv2_->multiply_adds(side) + conv3_->multiply_adds(side_after(side));
  return shortcut_ ? count + shortcut_->multiply_adds(side) : count;
}

}  // namespace yoke::models
