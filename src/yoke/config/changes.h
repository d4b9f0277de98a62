// What has changed between two configurations of one run.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "yoke/config/schema.h"

namespace yoke::config {

// The values of a text that Schema::to_toml() wrote, as they stand there: "train.lr" -> "0.05". Reads also
// those of other versions, whose keys may be unknown; lines that it did not write are passed over.
std::map<std::string, std::string> values_of(const std::string& toml);

// "train.lr 0.05 -> 0.1" for each key of `now` with another value in `saved` (such a text). Keys that are in
// one of them only are passed over, and so are those that `ignored` lists: keys ("out.dir") or sections
// ("out").
std::vector<std::string> changed_keys(const std::string& saved, const Schema& now,
                                      const std::vector<std::string>& ignored);

}  // namespace yoke::config
