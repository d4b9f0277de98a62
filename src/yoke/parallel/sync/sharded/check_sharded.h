// What replicas that shard cannot do.
#pragma once

#include "yoke/parallel/maker.h"

namespace yoke::parallel {

// Throws ConfigError for an gradients that cannot be sharded.
void check_sharded(const Kit& kit, const MakeOptions& options);

}  // namespace yoke::parallel
