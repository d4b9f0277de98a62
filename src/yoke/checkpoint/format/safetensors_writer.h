// Writes safetensors files directly from the tensors' memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/checkpoint/format/dtype.h"
#include "yoke/checkpoint/format/durable_file.h"

namespace yoke::checkpoint::format {

// One tensor to write: row-major, little-endian, valid until the writer returns.
struct TensorView {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  const void* data = nullptr;
  uint64_t bytes = 0;
};

struct WrittenFile {
  uint64_t bytes = 0;
  std::string digest;  // XXH3-128 of the whole file
};

// The order of tensors in a file: by element size, largest first, then by name. Each is thus aligned in a
// mapping, and memory in this order, page-aligned and without gaps, is written without a copy.
bool comes_before(uint64_t element_bytes, std::string_view name, uint64_t other_element_bytes,
                  std::string_view other_name);

// Writes and syncs `path` in that order (calling `ready` before reading), after a header padded to 8 bytes,
// or to a disk block for large files. Throws ConfigError if the disk fails (the file is then incomplete).
// Names must be distinct and bytes must match dtype and shape (YOKE_CHECK).
WrittenFile write_safetensors(const std::filesystem::path& path, std::vector<TensorView> tensors,
                              const std::map<std::string, std::string>& metadata = {},
                              const Failpoint& failpoint = nullptr, const Readiness& ready = nullptr);

}  // namespace yoke::checkpoint::format
