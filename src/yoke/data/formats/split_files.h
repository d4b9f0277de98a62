// The files of both splits of data sets whose data.dir is a folder or the training file itself (tokens,
// libsvm).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::data {

// Candidates for the test split of the training file `train`: its name with the last "train" replaced by
// `test_word`, then its name plus ".t".
std::vector<std::filesystem::path> test_files_of(const std::filesystem::path& train,
                                                 std::string_view test_word);

// The same for data.name and data.dir as configured. Empty for data sets with their own test split
// (fashion_mnist, …) and if the training file is missing.
std::vector<std::filesystem::path> test_files_of(const std::string& name, const std::string& dir);

}  // namespace yoke::data
