// Whether a rank's steps are recorded as CUDA graphs.
#pragma once

#include "yoke/parallel/maker.h"

namespace yoke::parallel {

// Of a rank with the whole model and no peers; before the model is placed.
bool can_record(const Kit& kit, const MakeOptions& options);

}  // namespace yoke::parallel
