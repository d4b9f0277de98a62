#include "yoke/models/common/layers.h"

#include "yoke/base/text.h"
#include "yoke/compute/determinism.h"
#include "yoke/compute/layers.h"

namespace yoke::models {
namespace {

// [side, size]: row i averages the bin from floor(i size / side) to ceil((i + 1) size / side), as LibTorch
// cuts them. Made on the device: this may run while a CUDA graph is captured.
torch::Tensor averaging_matrix(int64_t size, int64_t side, const torch::TensorOptions& options) {
  auto count = [&](int64_t n) { return at::arange(n, options.dtype(torch::kLong).requires_grad(false)); };
  torch::Tensor bin = count(side).unsqueeze(1), at = count(size).unsqueeze(0);
  torch::Tensor begin = (bin * size).floor_divide(side);
  torch::Tensor end = ((bin + 1) * size + (side - 1)).floor_divide(side);
  torch::Tensor inside = (at >= begin).logical_and(at < end);
  return inside.to(torch::kFloat).div(end - begin).to(options.dtype());
}

}  // namespace

Conv2d::Conv2d(int64_t in, int64_t out, const ConvOptions& conv_options) : options(conv_options) {
  weight = register_parameter("weight",
                              torch::empty({out, in / options.groups, options.kernel[0], options.kernel[1]}));
  if (options.bias) bias = register_parameter("bias", torch::empty({out}));
}

torch::Tensor Conv2d::forward(const torch::Tensor& x) const {
  return compute::conv2d(x, weight, bias,
                         {.stride = options.stride, .padding = options.padding, .groups = options.groups});
}

int64_t Conv2d::side_after(int64_t side) const {
  return (side + 2 * options.padding[0] - options.kernel[0]) / options.stride[0] + 1;
}

int64_t Conv2d::multiply_adds(int64_t side) const {
  int64_t width = (side + 2 * options.padding[1] - options.kernel[1]) / options.stride[1] + 1;
  return weight.numel() * side_after(side) * width;
}

Linear::Linear(int64_t in, int64_t out) {
  weight = register_parameter("weight", torch::empty({out, in}));
  bias = register_parameter("bias", torch::empty({out}));
}

torch::Tensor Linear::forward(const torch::Tensor& x) const {
  return compute::linear(x, weight, bias);
}

Embedding::Embedding(int64_t count, int64_t width) {
  weight = register_parameter("weight", torch::empty({count, width}));
}

torch::Tensor Embedding::forward(const torch::Tensor& indices) const {
  return at::embedding(weight, indices);
}

void attach(torch::nn::Module& root, const std::string& path, std::shared_ptr<torch::nn::Module> child) {
  std::vector<std::string> parts = split(path, '.');
  torch::nn::Module* parent = &root;
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    auto children = parent->named_children();
    auto* found = children.find(parts[i]);
    parent = found != nullptr
                 ? found->get()
                 : parent->register_module(parts[i], std::make_shared<torch::nn::Module>(parts[i])).get();
  }
  parent->register_module(parts.back(), std::move(child));
}

torch::Tensor average_to(const torch::Tensor& x, int64_t side) {
  bool already = x.size(2) == side && x.size(3) == side;
  if (already) return x;
  if (x.is_cuda() && side > 1 && compute::is_deterministic()) return average_by_products(x, side);
  return at::adaptive_avg_pool2d(x, {side, side});
}

torch::Tensor average_by_products(const torch::Tensor& x, int64_t side) {
  torch::Tensor rows = averaging_matrix(x.size(2), side, x.options());
  torch::Tensor columns = averaging_matrix(x.size(3), side, x.options());
  return at::matmul(at::matmul(rows, x), columns.t());
}

}  // namespace yoke::models
