// What the bits of a result depend on besides configuration and data. Kept in checkpoints.
#pragma once

#include <nlohmann/json.hpp>

#include <string>

#include "yoke/engine/worker.h"

namespace yoke::engine {

// Library, processor, device, threads, whether kernels are deterministic.
nlohmann::json circumstances(const Worker& worker);

// "threads 4 (was 2)", joined by commas; empty where nothing differs. What `before` lacks is not compared.
std::string changed_circumstances(const nlohmann::json& before, const nlohmann::json& now);

}  // namespace yoke::engine
