// IDX, the format of MNIST: two zero bytes, type, number of sizes, sizes (32 bits, big-endian), values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace yoke::data {

struct IdxArray {
  std::vector<int64_t> shape;
  std::string_view values;  // product(shape) unsigned bytes, inside the parsed memory
};

// Reads an array of unsigned bytes with `dims` sizes, none of them 0. Throws ConfigError (with `file` and
// offset) if header or file size are not as expected.
IdxArray parse_idx(std::string_view bytes, size_t dims, const std::string& file);

}  // namespace yoke::data
