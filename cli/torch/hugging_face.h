// What Hugging Face's transformers needs besides a file of weights.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "yoke/checkpoint/checkpoint.h"
#include "yoke/models/options.h"
#include "yoke/optim/optimizer.h"

namespace yoke::cli {

// config.json of the model with these weights; `configuration` is the run's, as stored in a checkpoint. Empty
// for models that transformers does not have, and for checkpoints without a configuration.
std::optional<nlohmann::json> hugging_face_config(const std::vector<optim::NamedTensor>& weights,
                                                  const std::string& configuration);

// The sizes of a gpt2 from its config.json. Throws ConfigError that names `file`, for other models and for
// variants of it that compute something else.
models::ModelOptions gpt2_options(const nlohmann::json& config, const std::string& file);

// The weights of a checkpoint: their moving average where there is one, else fp32 if the optimizer keeps such
// masters. `raw`: no average.
std::vector<optim::NamedTensor> published_weights(const checkpoint::State& state, bool raw = false);

// The folder of the run that a checkpoint belongs to.
std::filesystem::path run_of(const checkpoint::Loaded& loaded);

}  // namespace yoke::cli
