// What all peers of a collaborative run have in common: its name, and the keys that define what is trained.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "cli/run_config.h"

namespace yoke::cli {

// Keys that define the model, the samples, and the update, with their values as TOML. Keys that a peer may
// choose for itself (device, batch size, folders) are not among them.
nlohmann::json common_keys(const Configuration& configuration);

// The same keys as a configuration file. Others in `run` are ignored.
std::string to_toml(const nlohmann::json& run);

// Throws ConfigError if this configuration cannot be trained by peers: other strategies, fp16, L-BFGS.
void check_collab(const Configuration& configuration);

// Steps of a run over `samples` training samples.
int64_t collab_steps(const RunConfig& config, int64_t samples);

}  // namespace yoke::cli
