// A VGG-like network for 3x32x32 images: eight 3x3 convolutions and a wide head, without normalisation and
// dropout: 14,727,466 parameters, most of them in the head, which makes it a hard case for data parallel
// training.
#pragma once

#include "yoke/models/model.h"

namespace yoke::models {

// Uses classes, image_size (16 or more).
Model make_vgg_small(const ModelOptions& options);

}  // namespace yoke::models
