// A data set of shapes without values: for pipeline stages between the first, which needs the inputs, and the
// last, which needs the targets.
#pragma once

#include <memory>

#include "yoke/data/dataset.h"

namespace yoke::data {

// As many samples as `dataset`, of the same types and shapes, as tensors on the device "meta": reading one is
// an error. Examines one sample and does not need `dataset` afterwards. Requires: all samples have the same
// shape, which is not the case for kSparse.
std::unique_ptr<Dataset> shapes_only(const Dataset& dataset);

}  // namespace yoke::data
