// VGG (Simonyan, Zisserman 2014), as in torchvision: with 11 or 16 layers, and with batch normalisation
// (_bn).
#pragma once

#include "yoke/models/model.h"

namespace yoke::models {

// All use classes, image_size (32 or more), dropout (0.5).
Model make_vgg11(const ModelOptions& options);     // 132,863,336 parameters
Model make_vgg11_bn(const ModelOptions& options);  // 132,868,840
Model make_vgg16(const ModelOptions& options);     // 138,357,544
Model make_vgg16_bn(const ModelOptions& options);  // 138,365,992

}  // namespace yoke::models
