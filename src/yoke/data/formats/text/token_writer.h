// Writes a file of tokens that formats/tokens.h reads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "yoke/base/file.h"
#include "yoke/data/formats/text/pair_table.h"

namespace yoke::data {

// Writes beside the target under another name; the target appears, complete and synced, with commit().
// Without it nothing is left. All functions throw ConfigError that names the file. Not thread-safe.
class TokenWriter {
 public:
  // Tokens of `width` bytes: 2 or 4.
  TokenWriter(std::filesystem::path target, int width);
  ~TokenWriter();
  TokenWriter(const TokenWriter&) = delete;
  TokenWriter& operator=(const TokenWriter&) = delete;

  void add(std::span<const TokenId> tokens);
  void add_bytes(std::string_view text);  // a token for each

  int64_t count() const { return count_; }
  // Moves the tokens from `first` on to `other`, which is empty and has the same width.
  void move_tail(int64_t first, TokenWriter& other);

  // Throws ConfigError if a reader for `vocabulary` would take the file for another format.
  void finish(int64_t vocabulary);
  // After finish().
  void commit();

 private:
  void put(uint32_t token);
  void flush();
  void write(std::string_view bytes);
  [[noreturn]] void fail(const char* what, int error) const;

  std::filesystem::path target_, temporary_;
  FileDescriptor fd_;
  int width_;
  std::string buffer_;
  int64_t count_ = 0;
  bool committed_ = false;
};

}  // namespace yoke::data
