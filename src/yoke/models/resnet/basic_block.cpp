#include "yoke/models/resnet/basic_block.h"

#include "yoke/compute/layers.h"

namespace yoke::models {

BasicBlock::BasicBlock(int64_t in, int64_t width, int64_t stride) {
  using torch::nn::BatchNorm2dImpl;
  const ConvOptions strided{.kernel = {3, 3}, .stride = {stride, stride}, .padding = {1, 1}, .bias = false};
  const ConvOptions same{.kernel = {3, 3}, .padding = {1, 1}, .bias = false};
  conv1_ = add<Conv2d>(*this, "conv1", in, width, strided);
  bn1_ = add<BatchNorm2dImpl>(*this, "bn1", width);
  conv2_ = add<Conv2d>(*this, "conv2", width, width, same);
  bn2_ = add<BatchNorm2dImpl>(*this, "bn2", width);
  if (stride == 1 && in == width) return;
  shortcut_ =
      add<Conv2d>(*this, "downsample.0", in, width, ConvOptions{.stride = {stride, stride}, .bias = false});
  shortcut_bn_ = add<BatchNorm2dImpl>(*this, "downsample.1", width);
}

torch::Tensor BasicBlock::forward(const torch::Tensor& x) const {
  torch::Tensor y = compute::batch_norm_relu(*bn1_, conv1_->forward(x));
  y = conv2_->forward(y);
  torch::Tensor shortcut = shortcut_ ? compute::batch_norm(*shortcut_bn_, shortcut_->forward(x)) : x;
  return compute::batch_norm_add_relu(*bn2_, y, shortcut);
}

int64_t BasicBlock::multiply_adds(int64_t side) const {
  int64_t count = conv1_->multiply_adds(side) + conv2_->multiply_adds(side_after(side));
  return shortcut_ ? count + shortcut_->multiply_adds(side) : count;
}

}  // namespace yoke::models
