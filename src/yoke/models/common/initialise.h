// Drawing fresh weights, from the global generator.
#pragma once

#include <torch/nn/module.h>

#include "yoke/models/common/layers.h"

namespace yoke::models {

// Calls `visit` on every Wanted below (and including) `root`, in order of registration.
template <class Wanted, class Visit>
void for_each(torch::nn::Module& root, Visit visit) {
  for (const auto& module : root.modules()) {
    if (auto* layer = dynamic_cast<Wanted*>(module.get())) visit(*layer);
  }
}

// PyTorch's own: weights and biases uniform within 1 / sqrt(fan in); embeddings from N(0, 1). In PyTorch's
// order, so that a seed gives a model of these layers the same weights there and here.
void draw_default(Conv2d& conv);
void draw_default(Linear& linear);
void draw_default(Embedding& embedding);
void draw_default(torch::nn::Module& root);  // every such layer below `root`

// He's: N(0, sqrt(2 / fan out)), zero bias, as torchvision draws convolutions of VGG and ResNet.
void draw_fan_out(Conv2d& conv);

}  // namespace yoke::models
