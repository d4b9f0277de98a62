// AlexNet (Krizhevsky 2014, "one weird trick"), as torchvision has it: 61,100,840 parameters.
#pragma once

#include "yoke/models/model.h"

namespace yoke::models {

// Uses classes, image_size (63 or more), dropout (0.5).
Model make_alexnet(const ModelOptions& options);

}  // namespace yoke::models
