// What the environment says. The only place that reads it (but for NO_COLOR and TERM in base/terminal).
#pragma once

#include <filesystem>
#include <vector>

#include "yoke/config/schema.h"

namespace yoke::cluster {

// YOKE_TRAIN__LR=0.1 as {"train.lr", "0.1", "YOKE_TRAIN__LR"}, sorted by name.
std::vector<config::Override> config_overrides();

// Where measured choices are remembered between runs: $XDG_CACHE_HOME/yoke, else ~/.cache/yoke, else a folder
// of this user below /tmp. Not created.
std::filesystem::path cache_folder();

}  // namespace yoke::cluster
