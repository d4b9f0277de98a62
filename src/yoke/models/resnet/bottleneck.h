// ResNet's building block: 1x1, 3x3 and 1x1 convolutions with a shortcut.
#pragma once

#include <torch/nn/modules/batchnorm.h>

#include <memory>

#include "yoke/models/common/layers.h"

namespace yoke::models {

class Bottleneck : public torch::nn::Module {
 public:
  // `in` channels to 4 * `width`; the shortcut is a convolution if shapes differ.
  Bottleneck(int64_t in, int64_t width, int64_t stride);
  static constexpr int64_t kWidening = 4;  // channels of the output, per `width`
  torch::Tensor forward(const torch::Tensor& x) const;
  int64_t side_after(int64_t side) const { return conv2_->side_after(side); }
  int64_t multiply_adds(int64_t side) const;

 private:
  using Norm = std::shared_ptr<torch::nn::BatchNorm2dImpl>;
  std::shared_ptr<Conv2d> conv1_, conv2_, conv3_, shortcut_;
  Norm bn1_, bn2_, bn3_, shortcut_bn_;
};

}  // namespace yoke::models
