#include "yoke/models/common/initialise.h"

#include <torch/nn/init.h>

#include <cmath>

namespace yoke::models {
namespace {

// PyTorch's reset_parameters() calls kaiming_uniform_(a = sqrt(5)), which equals 1 / sqrt(fan in).
void draw_uniform(torch::Tensor& weight, torch::Tensor& bias) {
  torch::nn::init::kaiming_uniform_(weight, std::sqrt(5.0));
  if (!bias.defined()) return;
  double bound = 1.0 / std::sqrt(static_cast<double>(weight.numel() / weight.size(0)));
  torch::nn::init::uniform_(bias, -bound, bound);
}

}  // namespace

void draw_default(Conv2d& conv) {
  draw_uniform(conv.weight, conv.bias);
}

void draw_default(Linear& linear) {
  draw_uniform(linear.weight, linear.bias);
}

void draw_default(Embedding& embedding) {
  torch::nn::init::normal_(embedding.weight);
}

void draw_default(torch::nn::Module& root) {
  for (const auto& module : root.modules()) {
    if (auto* conv = dynamic_cast<Conv2d*>(module.get())) draw_default(*conv);
    if (auto* linear = dynamic_cast<Linear*>(module.get())) draw_default(*linear);
    if (auto* embedding = dynamic_cast<Embedding*>(module.get())) draw_default(*embedding);
  }
}

void draw_fan_out(Conv2d& conv) {
  torch::nn::init::kaiming_normal_(conv.weight, /*a=*/0, torch::kFanOut, torch::kReLU);
  if (conv.bias.defined()) torch::nn::init::zeros_(conv.bias);
}

}  // namespace yoke::models
