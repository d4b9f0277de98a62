// Makes the strategies of a job some of whose ranks are spares (Choices::spares).
#pragma once

#include <memory>

#include "yoke/parallel/maker.h"

namespace yoke::parallel {

// As place_model(): the last options.spares ranks hold nothing, the others place the model among themselves.
std::shared_ptr<Maker> place_beside_spares(Kit& kit, const MakeOptions& options);

}  // namespace yoke::parallel
