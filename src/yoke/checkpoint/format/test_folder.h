// A folder for one test, removed at its end. Tests only.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "yoke/base/file.h"

namespace yoke::checkpoint::format {

class TestFolder {
 public:
  TestFolder() {
    // In memory where that is possible: these tests sync hundreds of times.
    std::filesystem::path parent =
        ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : std::filesystem::temp_directory_path();
    std::string name = (parent / "yoke_checkpoint_XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline void overwrite_file(const std::filesystem::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

// The bit with this number, counted from the file's beginning, becomes the other one.
inline void flip_bit(const std::filesystem::path& path, size_t bit) {
  std::string content = read_file(path);
  content.at(bit / 8) = static_cast<char>(content.at(bit / 8) ^ (1 << (bit % 8)));
  overwrite_file(path, content);
}

}  // namespace yoke::checkpoint::format
