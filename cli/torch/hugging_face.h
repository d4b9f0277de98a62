// What Hugging Face's transformers needs besides a file of weights.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "yoke/optim/optimizer.h"

namespace yoke::cli {

// config.json of the model with these weights; `configuration` is the run's, as stored in a checkpoint. Empty
// for models that transformers does not have, and for checkpoints without a configuration.
std::optional<nlohmann::json> hugging_face_config(const std::vector<optim::NamedTensor>& weights,
                                                  const std::string& configuration);

}  // namespace yoke::cli
