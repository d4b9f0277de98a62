// Inception-v3's building blocks, under torchvision's names.
#pragma once

#include <torch/nn/modules/batchnorm.h>

#include <cstdint>
#include <memory>
#include <string>

#include "yoke/models/common/layers.h"

namespace yoke::models {

// Convolution without bias, batch normalisation, ReLU.
class NormedConv : public torch::nn::Module {
 public:
  NormedConv(int64_t in, int64_t out, ConvOptions options);
  torch::Tensor operator()(const torch::Tensor& x) const;
  int64_t side_after(int64_t side) const { return conv_->side_after(side); }
  int64_t multiply_adds(int64_t side) const { return conv_->multiply_adds(side); }

 private:
  std::shared_ptr<Conv2d> conv_;
  std::shared_ptr<torch::nn::BatchNorm2dImpl> bn_;
};

// Several branches side by side; their channels are concatenated.
class Mixed : public torch::nn::Module {
 public:
  virtual torch::Tensor forward(const torch::Tensor& x) const = 0;
  // Multiply-adds on a `side` x `side` map. Within a branch only the last convolution changes the side.
  int64_t multiply_adds(int64_t side) const;

 protected:
  // A convolution of a branch, owned by this module.
  NormedConv& branch(const std::string& name, int64_t in, int64_t out, const ConvOptions& options = {});
};

std::shared_ptr<Mixed> make_mixed_a(int64_t in,
                                    int64_t pool_width);  // keeps the side; 224 + pool_width channels
std::shared_ptr<Mixed> make_mixed_b(int64_t in);          // halves the side; in + 480 channels
std::shared_ptr<Mixed> make_mixed_c(int64_t in, int64_t inner_width);  // keeps the side; 768 channels
std::shared_ptr<Mixed> make_mixed_d(int64_t in);                       // halves the side; in + 512 channels
std::shared_ptr<Mixed> make_mixed_e(int64_t in);                       // keeps the side; 2048 channels

}  // namespace yoke::models
