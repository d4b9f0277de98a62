// Decompresses .gz files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace yoke::data {

// Whether `bytes` start like a gzip file.
bool is_gzip(std::string_view bytes);

// Decompresses all members of a gzip file. Throws ConfigError (with `file` and offset) if it is truncated,
// damaged, has trailing data, or decompresses to more than `limit` bytes.
std::string unpack_gzip(std::string_view bytes, const std::string& file, int64_t limit = int64_t{1} << 30);

}  // namespace yoke::data
