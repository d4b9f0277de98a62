// ResNet (He et al. 2015) in version 1.5 (stride in the 3x3 convolutions), as in torchvision.
#pragma once

#include "yoke/models/model.h"

namespace yoke::models {

// All use classes, image_size.
Model make_resnet18(const ModelOptions& options);   // 11,689,512 parameters
Model make_resnet34(const ModelOptions& options);   // 21,797,672
Model make_resnet50(const ModelOptions& options);   // 25,557,032
Model make_resnet101(const ModelOptions& options);  // 44,549,160
Model make_resnet152(const ModelOptions& options);  // 60,192,808

}  // namespace yoke::models
