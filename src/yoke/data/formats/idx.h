// IDX, the format of MNIST: two zero bytes, a type, the number of sizes, the sizes (32 bits, big-endian),
// values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::data {

struct IdxArray {
  std::vector<int64_t> shape;
  std::string_view values;  // the product of `shape` unsigned bytes, inside what was parsed
};

// Reads an array of unsigned bytes with `dims` sizes, none of them 0. Throws ConfigError (names `file` and
// offset) where the header is another or the size of the file is not what the header says.
IdxArray parse_idx(std::string_view bytes, size_t dims, const std::string& file);

}  // namespace yoke::data
