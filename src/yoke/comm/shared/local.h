// Ranks that are threads of one process.
#pragma once

#include <memory>
#include <vector>

#include "yoke/cluster/failure.h"
#include "yoke/comm/backend.h"

namespace yoke::comm {

// One for each rank, in order; each is then used by its own thread. Throws ConfigError for a size outside of
// 1 to 64.
std::vector<std::unique_ptr<Backend>> make_local_backends(int size,
                                                          std::shared_ptr<cluster::Failure> failure);

}  // namespace yoke::comm
