// How much memory each block keeps for backward.
#pragma once

#include <cstdint>
#include <vector>

#include "yoke/engine/worker.h"

namespace yoke::engine {

// Bytes that stay allocated after each block's forward of one synthetic batch, measured with the allocators' own
// reports. Only budgets need it: for other policies every block counts 1 and nothing runs. Leaves random state,
// BatchNorm statistics and gradients as they were.
std::vector<int64_t> activation_bytes(const Worker& worker, const WorkerOptions& options);

}  // namespace yoke::engine
