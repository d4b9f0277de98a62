// VGG16 without batch normalisation (Simonyan, Zisserman 2014), as in torchvision: 138,357,544 parameters.
#pragma once

#include "yoke/models/model.h"

namespace yoke::models {

// Uses classes, image_size (32 or more), dropout (0.5).
Model make_vgg16(const ModelOptions& options);

}  // namespace yoke::models
