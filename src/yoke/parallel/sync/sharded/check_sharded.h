// What the makers of sharding replicas have in common.
#pragma once

#include "yoke/parallel/maker.h"
#include "yoke/parallel/placement/sharded/options.h"

namespace yoke::parallel {

// Throws ConfigError for gradients that cannot be sharded.
void check_sharded(const Kit& kit, const MakeOptions& options);

// As the options of a run ask for.
FullyShardOptions how_to_gather(const Kit& kit, const MakeOptions& options);

}  // namespace yoke::parallel
