// Inception-v3 (Szegedy et al. 2015), as in torchvision (without its transform_input): 27,161,264 parameters
// with the auxiliary head.
//
// In training the outputs are logits and the auxiliary head's logits, and the loss is the first's plus 0.4
// times the second's; in evaluation only the logits. Below 299x299 the auxiliary head uses adaptive average
// pooling to the 5x5 that it expects; torchvision cannot train at such sizes.
#pragma once

#include "yoke/models/model.h"

namespace yoke::models {

// Uses classes, image_size (75 or more), dropout (0.5).
Model make_inception_v3(const ModelOptions& options);

}  // namespace yoke::models
