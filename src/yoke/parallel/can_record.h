// Whether a rank's steps are recorded as CUDA graphs.
#pragma once

#include <string>

#include "yoke/parallel/maker.h"

namespace yoke::parallel {

// Of a rank with the whole model and no peers; before the model is placed.
bool can_record(const Kit& kit, const MakeOptions& options);

// Why steps of a rank that averages gradients with its peers are not recorded; empty: they are. Requires:
// CUDA, and the kit's segments. The same on all ranks.
std::string why_not_recorded(const Kit& kit, const MakeOptions& options);

}  // namespace yoke::parallel
