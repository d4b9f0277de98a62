// Which runs can be elastic: ranks may die, leave and return (docs/design/elastic.md).
#pragma once

#include <string>

#include "yoke/parallel/choices.h"

namespace yoke::parallel {

// Throws ConfigError that names what excludes it: anything that places state on one rank only, or whose ranks
// connect in a way that cannot be repeated. `gpu`: trains on GPUs, which communicate over NCCL by default.
void check_elastic(const Choices& choices, const std::string& optimizer, bool gpu);

}  // namespace yoke::parallel
