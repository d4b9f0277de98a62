// safetensors, the writer's side: straight from the tensors' memory to the disk.
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

// One tensor to write: row-major, little-endian, at least until the writer returns.
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

// The order of tensors in a file: wider elements first, then by name.
bool comes_before(uint64_t element_bytes, std::string_view name, uint64_t other_element_bytes,
                  std::string_view other_name);

// Writes and syncs `path`. Tensors lie by size of element, then by name, behind a header padded to 8 bytes,
// so that each is aligned in a mapping. Throws ConfigError where the disk fails (the file is then
// incomplete); names must be distinct and bytes must fit dtype and shape (YOKE_CHECK).
WrittenFile write_safetensors(const std::filesystem::path& path, std::vector<TensorView> tensors,
                              const std::map<std::string, std::string>& metadata = {},
                              const Failpoint& failpoint = nullptr);

}  // namespace yoke::checkpoint::format
