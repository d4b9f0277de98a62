// Weight initialisation, from the global generator.
#pragma once

#include <torch/nn/module.h>

#include "yoke/models/common/layers.h"

namespace yoke::models {

// Calls `visit` on every Wanted in `root` (including itself), in order of registration.
template <class Wanted, class Visit>
void for_each(torch::nn::Module& root, Visit visit) {
  for (const auto& module : root.modules()) {
    if (auto* layer = dynamic_cast<Wanted*>(module.get())) visit(*layer);
  }
}

// PyTorch's default: weights and biases uniform within 1 / sqrt(fan in); embeddings from N(0, 1). In
// PyTorch's order, so that a seed gives the same weights as there.
void draw_default(Conv2d& conv);
void draw_default(Linear& linear);
void draw_default(Embedding& embedding);
void draw_default(torch::nn::Module& root);  // every such layer in `root`

// He initialisation: N(0, sqrt(2 / fan out)), zero bias, as in torchvision's VGG and ResNet.
void draw_fan_out(Conv2d& conv);

}  // namespace yoke::models
