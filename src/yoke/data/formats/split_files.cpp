#include "yoke/data/formats/split_files.h"

namespace yoke::data {

namespace fs = std::filesystem;

std::vector<fs::path> test_files_of(const fs::path& train, std::string_view test_word) {
  std::vector<fs::path> files;
  const std::string name = train.filename().string();
  if (const size_t at = name.rfind("train"); at != std::string::npos)
    files.push_back(train.parent_path() / std::string(name).replace(at, 5, test_word));
  files.push_back(train.parent_path() / (name + ".t"));
  return files;
}

std::vector<fs::path> test_files_of(const std::string& name, const std::string& dir) {
  if (name != "tokens" && name != "libsvm") return {};
  const fs::path place = dir.empty() ? fs::path("data") / name : fs::path(dir);
  std::error_code ignored;  // unreadable counts as missing
  if (fs::is_regular_file(place, ignored)) return test_files_of(place, name == "tokens" ? "val" : "test");
  if (!fs::is_regular_file(place / (name == "tokens" ? "train.bin" : "train.libsvm"), ignored)) return {};
  return {place / (name == "tokens" ? "val.bin" : "test.libsvm")};
}

}  // namespace yoke::data
