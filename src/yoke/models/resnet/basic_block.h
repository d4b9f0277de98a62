// Building block of the smaller ResNets: two 3x3 convolutions with a shortcut.
#pragma once

#include <torch/nn/modules/batchnorm.h>

#include <memory>

#include "yoke/models/common/layers.h"

namespace yoke::models {

class BasicBlock : public torch::nn::Module {
 public:
  // `in` to `width` channels; the shortcut is a convolution if shapes differ.
  BasicBlock(int64_t in, int64_t width, int64_t stride);
  static constexpr int64_t kWidening = 1;  // channels of the output, per `width`
  torch::Tensor forward(const torch::Tensor& x) const;
  int64_t side_after(int64_t side) const { return conv1_->side_after(side); }
  int64_t multiply_adds(int64_t side) const;

 private:
  using Norm = std::shared_ptr<torch::nn::BatchNorm2dImpl>;
  std::shared_ptr<Conv2d> conv1_, conv2_, shortcut_;
  Norm bn1_, bn2_, shortcut_bn_;
};

}  // namespace yoke::models
