// Differences between two configurations of one run.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "yoke/config/schema.h"

namespace yoke::config {

// The values of a text written by Schema::to_toml(), verbatim: "train.lr" -> "0.05". Also reads those of
// other versions, whose keys may be unknown; other lines are ignored.
std::map<std::string, std::string> values_of(const std::string& toml);

// "train.lr 0.05 -> 0.1" for each key of `now` with another value in `saved` (such a text). Keys in only one
// of them are ignored, and so are those in `ignored`: keys ("out.dir") or sections ("out").
std::vector<std::string> changed_keys(const std::string& saved, const Schema& now,
                                      const std::vector<std::string>& ignored);

}  // namespace yoke::config
