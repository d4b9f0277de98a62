// What the bits of a result depend on besides configuration and data. Stored in checkpoints.
#pragma once

#include <nlohmann/json.hpp>

#include <string>

#include "yoke/engine/worker.h"

namespace yoke::engine {

// Library, processor, device, threads, deterministic kernels.
nlohmann::json circumstances(const Worker& worker);

// "threads 4 (was 2)", comma-separated; empty if nothing differs. Keys missing from `before` are not
// compared.
std::string changed_circumstances(const nlohmann::json& before, const nlohmann::json& now);

}  // namespace yoke::engine
