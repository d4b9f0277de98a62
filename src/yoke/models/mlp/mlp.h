// Linear layers with ReLU between them: layers.0, layers.1, …
#pragma once

#include "yoke/models/model.h"

namespace yoke::models {

// Uses sizes (input first; [784, 256, 10]). Inputs of more dims are flattened.
Model make_mlp(const ModelOptions& options);

}  // namespace yoke::models
