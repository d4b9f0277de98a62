// The names of data sets, without LibTorch: configurations are checked before it is loaded.
#pragma once

#include <string>

namespace yoke::data {

// Registers a name. Throws ConfigError if it is taken.
void add_data_name(const std::string& name);

// Whether it is a built-in data set.
bool is_built_in_data(const std::string& name);

// Whether data.augment, data.jitter and data.mixup can have an effect: built-in pictures, or a registered
// data set, which decides itself.
bool reads_pictures(const std::string& name);

}  // namespace yoke::data
