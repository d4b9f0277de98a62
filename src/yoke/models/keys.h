#pragma once

#include <string>

namespace yoke::models {

// Whether the model uses this key of [model]. Throws ConfigError if there is no such model.
bool uses_key(const std::string& model, const std::string& key);

}  // namespace yoke::models
