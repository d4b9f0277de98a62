// Backend for ranks that are threads of one process.
#pragma once

#include <memory>
#include <vector>

#include "yoke/cluster/failure.h"
#include "yoke/comm/backend.h"

namespace yoke::comm {

// One backend per rank, each for its own thread. Throws ConfigError unless 1 <= size <= 64.
std::vector<std::unique_ptr<Backend>> make_local_backends(int size,
                                                          std::shared_ptr<cluster::Failure> failure);

}  // namespace yoke::comm
