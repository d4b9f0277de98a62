// Locates the files of a data set.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/data/dataset.h"

namespace yoke::data {

// The first existing file of `names` in `places`. Throws ConfigError that lists everything searched, and
// `hint`.
std::filesystem::path find_file(const DataOptions& options, const std::vector<std::filesystem::path>& places,
                                const std::vector<std::string>& names, std::string_view hint);

// For data sets whose data.dir is a folder or the training file itself. In a folder, `names` are searched.
// For a file, its test split is `file` with the last "train" of its name replaced by `test_word`, or `file` +
// ".t".
std::filesystem::path find_split(const DataOptions& options, Split split,
                                 const std::vector<std::string>& names, std::string_view test_word,
                                 std::string_view hint);

}  // namespace yoke::data
