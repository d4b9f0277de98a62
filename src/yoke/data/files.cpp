#include "yoke/data/files.h"

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/data/formats/split_files.h"

namespace yoke::data {
namespace fs = std::filesystem;
namespace {

bool is_file(const fs::path& path) {
  std::error_code ignored;  // unreadable counts as missing
  return fs::is_regular_file(path, ignored);
}

[[noreturn]] void throw_missing(const DataOptions& options, const std::vector<fs::path>& looked,
                                std::string_view hint) {
  std::vector<std::string> names;
  for (const fs::path& path : looked) names.push_back(path.string());
  throw ConfigError("data.name = {}: found none of {}. {}", options.name, join(names), hint);
}

fs::path test_file_of(const fs::path& train, const DataOptions& options, std::string_view test_word,
                      std::string_view hint) {
  std::vector<fs::path> looked = test_files_of(train, test_word);
  for (const fs::path& path : looked) {
    if (is_file(path)) return path;
  }
  throw_missing(options, looked, hint);
}

}  // namespace

fs::path find_file(const DataOptions& options, const std::vector<fs::path>& places,
                   const std::vector<std::string>& names, std::string_view hint) {
  std::vector<fs::path> looked;
  for (const fs::path& place : places) {
    for (const std::string& name : names) {
      looked.push_back(place / name);
      if (is_file(looked.back())) return looked.back();
    }
  }
  throw_missing(options, looked, hint);
}

fs::path find_split(const DataOptions& options, Split split, const std::vector<std::string>& names,
                    std::string_view test_word, std::string_view hint) {
  const fs::path place = options.dir.empty() ? fs::path("data") / options.name : fs::path(options.dir);
  if (!is_file(place)) return find_file(options, {place}, names, hint);
  return split == Split::kTrain ? place : test_file_of(place, options, test_word, hint);
}

}  // namespace yoke::data
