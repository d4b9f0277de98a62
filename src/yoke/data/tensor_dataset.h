// Tensors in memory as a data set.
#pragma once

#include "yoke/data/dataset.h"

namespace yoke::data {

// `inputs` and `target` have one row per sample. Throws ConfigError if they have different numbers of rows,
// or another shape than `spec`.
std::unique_ptr<Dataset> of_tensors(torch::Tensor inputs, torch::Tensor target, SampleSpec spec);

}  // namespace yoke::data
