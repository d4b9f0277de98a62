// ResNet-50 (He et al. 2015) in version 1.5 (stride in the 3x3 convolutions), as in torchvision: 25,557,032
// parameters.
#pragma once

#include "yoke/models/model.h"

namespace yoke::models {

// Uses classes, image_size.
Model make_resnet50(const ModelOptions& options);

}  // namespace yoke::models
