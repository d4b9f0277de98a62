// XXH3-128: detects torn and corrupted files at memory speed. Not cryptographic.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace yoke::checkpoint::format {

class Digest {
 public:
  Digest();
  ~Digest();
  void update(const void* data, size_t bytes);
  // 32 lower-case hexadecimal digits, as printed by `xxh128sum`, of all bytes so far.
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string digest_of(std::string_view bytes);

// Reads the whole file. Throws ConfigError.
std::string digest_of_file(const std::filesystem::path& path);

// Whether it is 32 lower-case hexadecimal digits.
bool is_digest(std::string_view text);

}  // namespace yoke::checkpoint::format
