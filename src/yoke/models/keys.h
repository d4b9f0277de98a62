#pragma once

#include <string>

namespace yoke::models {

// Whether the model has a use for this key of [model]. Throws ConfigError where there is no such model.
bool uses_key(const std::string& model, const std::string& key);

}  // namespace yoke::models
