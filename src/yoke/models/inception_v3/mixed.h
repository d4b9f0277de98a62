// Inception-v3's building blocks, under torchvision's names.
#pragma once

#include <torch/nn/modules/batchnorm.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "yoke/models/common/layers.h"
#include "yoke/models/model.h"

namespace yoke::models {

using Pooling = torch::Tensor (*)(const torch::Tensor&);

// Convolution without bias, batch normalisation, ReLU.
class NormedConv : public torch::nn::Module {
 public:
  NormedConv(int64_t in, int64_t out, ConvOptions options);
  // `pooling`: of the convolution's result; nullptr: none.
  torch::Tensor operator()(const torch::Tensor& x, Pooling pooling = nullptr) const;
  int64_t side_after(int64_t side) const { return conv_->side_after(side); }
  int64_t multiply_adds(int64_t side) const { return conv_->multiply_adds(side); }

 private:
  std::shared_ptr<Conv2d> conv_;
  std::shared_ptr<torch::nn::BatchNorm2dImpl> bn_;
};

// Several parallel branches; their channels are concatenated.
class Mixed : public torch::nn::Module {
 public:
  virtual torch::Tensor forward(const torch::Tensor& x) const = 0;
  // The same as nodes of a graph: every convolution one, and one named `name` that joins them. `input` is the
  // node that it reads. `self` is this module.
  static std::vector<Block> nodes(const std::shared_ptr<Mixed>& self, const std::string& name,
                                  const std::string& input);
  // Multiply-adds on a `side` x `side` map. Within a branch only the last convolution changes the side.
  int64_t multiply_adds(int64_t side) const;

 protected:
  // A part of the module: the convolution `name`, or a pooling without weights, of what `reads` gives; empty:
  // of the module's input.
  struct Part {
    std::string name;
    std::string reads;
    Pooling pooling = nullptr;  // of the convolution's result, or of the input if there is no convolution
  };
  struct Wiring {
    std::vector<Part> parts;
    std::vector<std::string> joined;  // whose channels are concatenated, in this order
  };
  virtual Wiring wiring() const = 0;

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
