// Small documents of all ranks in one place.
#pragma once

#include <torch/types.h>

#include <nlohmann/json.hpp>

#include "yoke/comm/communicator.h"

namespace yoke::engine {

// An array of every rank's `own`, in the order of ranks, on every rank. Collective. Without a communicator:
// of this one alone. `device`: where the communicator's memory is.
nlohmann::json gather_json(const nlohmann::json& own, comm::Communicator* comm, torch::Device device);

}  // namespace yoke::engine
