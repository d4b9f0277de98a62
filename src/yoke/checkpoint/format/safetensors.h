// Reads safetensors headers, validated before anything is mapped or allocated.
//
// A file is: N (8 bytes, little-endian), N bytes of JSON padded with spaces, then the tensors' bytes without
// gaps.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/checkpoint/format/dtype.h"

namespace yoke::checkpoint::format {

struct TensorEntry {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // empty: a scalar
  uint64_t begin = 0;          // relative to the end of the header
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // by offset
  std::map<std::string, std::string> metadata;
  uint64_t data_offset = 0;  // offset of the tensors' bytes in the file
};

constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kMaxNameBytes = 4096;
constexpr size_t kMaxDims = 64;

// Parses the header of a file of `file_size` bytes that starts with `prefix` (at least the header, or the
// whole file). `name` is the file, for errors. Accepts exactly what the format allows: no duplicate keys,
// integers in [0, 2^63), sizes that match dtype and shape, tensors that cover every byte behind the header
// once. Throws ConfigError that names file, tensor and offset.
SafetensorsHeader parse_header(std::string_view prefix, uint64_t file_size, const std::string& name);

// Number of elements of a shape; false if it exceeds 2^63.
bool element_count(const std::vector<int64_t>& shape, uint64_t* count);

}  // namespace yoke::checkpoint::format
