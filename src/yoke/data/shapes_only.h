// A data set of which only the shapes are wanted: for stages of a pipeline between the first, which takes the
// inputs, and the last, which takes the targets.
#pragma once

#include <memory>

#include "yoke/data/dataset.h"

namespace yoke::data {

// As many samples as `dataset`, of the same types and shapes, without values: tensors of the device "meta",
// so that reading one is an error. Looks at one sample, and needs `dataset` no longer. Requires: all samples
// have the same shape, which those of kind kSparse do not.
std::unique_ptr<Dataset> shapes_only(const Dataset& dataset);

}  // namespace yoke::data
