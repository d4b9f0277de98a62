// LeNet-5 with ReLU and max pooling (LeCun et al. 1998), for 1x28x28 images: 61,706 parameters.
#pragma once

#include "yoke/models/model.h"

namespace yoke::models {

// Uses classes, image_size (12 or more).
Model make_lenet(const ModelOptions& options);

}  // namespace yoke::models
