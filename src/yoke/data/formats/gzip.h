// Unpacking .gz files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace yoke::data {

// True where `bytes` begin as a gzip file does.
bool is_gzip(std::string_view bytes);

// Unpacks all members of a gzip file. Throws ConfigError (names `file` and offset) where the file is
// truncated, damaged, followed by something else, or unpacks to more than `limit` bytes.
std::string unpack_gzip(std::string_view bytes, const std::string& file, int64_t limit = int64_t{1} << 30);

}  // namespace yoke::data
