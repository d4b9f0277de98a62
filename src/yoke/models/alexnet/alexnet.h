// AlexNet (Krizhevsky 2014, "one weird trick"), as in torchvision: 61,100,840 parameters.
#pragma once

#include "yoke/models/model.h"

namespace yoke::models {

// Uses classes, image_size (63 or more), dropout (0.5).
Model make_alexnet(const ModelOptions& options);

// The original network (Krizhevsky et al. 2012), designed for two devices: 96 and 256 channels first, and the
// second, fourth and fifth convolution in two independent groups; 60,965,224 parameters. Local response
// normalisation is omitted. model.name = alexnet_original. plan::alexnet_of_two() splits it as in the paper.
// Parameters are uninitialised: call initialise().
Model make_alexnet_of_two(const ModelOptions& options);

}  // namespace yoke::models
