// What recipes of one device (groups of parameters, layer-wise optimizers, averages of the weights) cannot be
// combined with.
#pragma once

#include "yoke/optim/options.h"
#include "yoke/parallel/choices.h"

namespace yoke::parallel {

// Throws ConfigError.
void check_recipe(const Choices& choices, const optim::OptimizerOptions& optimizer);

}  // namespace yoke::parallel
