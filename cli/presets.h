// Published recipes by name (train.preset): values for keys that the user has not set.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "yoke/config/schema.h"

namespace yoke::cli {

struct Preset {
  std::string name;
  std::string source;                                         // the publication
  std::vector<std::pair<std::string, std::string>> settings;  // keys and their values as typed
  // The same for data sets that read pictures; others cannot augment.
  std::vector<std::pair<std::string, std::string>> pictures;
};

const std::vector<Preset>& presets();

// Sets the keys of the preset that no source has set; their origin names it. Empty: nothing.
// `reads_pictures`: the data set augments.
void apply_preset(config::Schema& schema, const std::string& name, bool reads_pictures);

// Every preset with its keys, as Markdown.
std::string preset_reference(const config::Schema& schema);

}  // namespace yoke::cli
