// The layers of the models. They own parameters, under LibTorch's names, and compute through
// yoke/compute/layers.h. Parameters start uninitialised; Model::initialise sets them (common/initialise.h).
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>

namespace yoke::models {

struct ConvOptions {
  std::array<int64_t, 2> kernel = {1, 1};  // height, width
  std::array<int64_t, 2> stride = {1, 1};
  std::array<int64_t, 2> padding = {0, 0};
  bool bias = true;
  int64_t groups = 1;  // of channels
};

class Conv2d : public torch::nn::Module {
 public:
  Conv2d(int64_t in, int64_t out, const ConvOptions& options);
  torch::Tensor forward(const torch::Tensor& x) const;  // [N, in, H, W] to [N, out, H', W']
  // Output height for an input of height `side`; models of square images use it for both dims.
  int64_t side_after(int64_t side) const;
  // Multiply-adds for one `side` x `side` image.
  int64_t multiply_adds(int64_t side) const;

  ConvOptions options;
  torch::Tensor weight;  // [out, in / groups, kernel height, kernel width]
  torch::Tensor bias;    // [out], or undefined
};

class Linear : public torch::nn::Module {
 public:
  Linear(int64_t in, int64_t out);
  torch::Tensor forward(const torch::Tensor& x) const;  // [.., in] to [.., out]

  torch::Tensor weight;  // [out, in]
  torch::Tensor bias;    // [out]
};

class Embedding : public torch::nn::Module {
 public:
  Embedding(int64_t count, int64_t width);
  torch::Tensor forward(const torch::Tensor& indices) const;  // int64 [..] to [.., width]

  torch::Tensor weight;  // [count, width]
};

// Registers `child` under a dotted path ("features.0"); creates intermediate groups as needed.
void attach(torch::nn::Module& root, const std::string& path, std::shared_ptr<torch::nn::Module> child);

template <class Layer, class... Args>
std::shared_ptr<Layer> add(torch::nn::Module& root, const std::string& path, Args&&... args) {
  auto layer = std::make_shared<Layer>(std::forward<Args>(args)...);
  attach(root, path, layer);
  return layer;
}

// Average pooling to `side` x `side`, for any input size.
torch::Tensor average_to(const torch::Tensor& x, int64_t side);

// The same as two matrix products: for train.deterministic on CUDA, where LibTorch's gradient is summed in no
// fixed order.
torch::Tensor average_by_products(const torch::Tensor& x, int64_t side);

}  // namespace yoke::models
