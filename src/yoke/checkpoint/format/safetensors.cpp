#include "yoke/checkpoint/format/safetensors.h"

#include <algorithm>
#include <bit>
#include <unordered_set>

#include "yoke/base/error.h"
#include "yoke/checkpoint/format/safetensors_sax.h"
#include "yoke/checkpoint/format/strict_json.h"

namespace yoke::checkpoint::format {
namespace {

static_assert(std::endian::native == std::endian::little,
              "tensors are stored little-endian and used as they lie");

uint64_t read_length(std::string_view prefix) {
  uint64_t n = 0;
  for (size_t i = 0; i < 8; ++i) n |= uint64_t{static_cast<unsigned char>(prefix[i])} << (8 * i);
  return n;
}

std::string_view header_text(std::string_view prefix, uint64_t file_size, const std::string& name) {
  if (file_size < 8 || prefix.size() < 8) {
    throw ConfigError(
        "{}: {} bytes, too short for a safetensors file (8 bytes of header length at offset 0).", name,
        file_size);
  }
  uint64_t n = read_length(prefix);
  if (n > kMaxHeaderBytes) {
    throw ConfigError("{}: header length {} at offset 0; at most {}. Is it a safetensors file?", name, n,
                      kMaxHeaderBytes);
  }
  if (8 + n > file_size || 8 + n > prefix.size()) {
    throw ConfigError(
        "{}: header of {} bytes, but the file ends at byte {}. It is truncated, or not a safetensors file.",
        name, n, file_size);
  }
  return prefix.substr(8, n);
}

void check_padding(std::string_view text, const std::string& name) {
  size_t bad = text.find_first_not_of(' ', text.find_last_of('}') + 1);
  if (bad != std::string_view::npos) {
    throw ConfigError("{}: byte {} behind the header's JSON is not a space.", name, 8 + bad);
  }
}

void check_unique_names(const SafetensorsHeader& header, const std::string& name) {
  std::unordered_set<std::string_view> seen;
  for (const TensorEntry& t : header.tensors) {
    if (!seen.insert(t.name).second) {
      throw ConfigError("{}: safetensors header: the key \"{}\" appears twice.", name, t.name);
    }
  }
}

void check_size(const TensorEntry& t, const std::string& name) {
  if (t.begin > t.end) {
    throw ConfigError("{}: tensor \"{}\" ends at offset {}, before it begins at {}.", name, t.name, t.end,
                      t.begin);
  }
  uint64_t count = 0, bytes = 0;
  if (!element_count(t.shape, &count) || __builtin_mul_overflow(count, size_of(t.dtype), &bytes)) {
    throw ConfigError("{}: tensor \"{}\" at offset {}: its shape has more elements than fit 64 bits.", name,
                      t.name, t.begin);
  }
  if (bytes != t.end - t.begin) {
    throw ConfigError("{}: tensor \"{}\" at offset {}: {} bytes, but dtype {} and shape need {}.", name,
                      t.name, t.begin, t.end - t.begin, name_of(t.dtype), bytes);
  }
}

void check_coverage(const SafetensorsHeader& header, uint64_t data_bytes, const std::string& name) {
  uint64_t at = 0;
  for (const TensorEntry& t : header.tensors) {
    if (t.begin != at) {
      throw ConfigError("{}: tensor \"{}\" begins at offset {}, the one before ends at {}: {}.", name, t.name,
                        t.begin, at, t.begin > at ? "a hole" : "an overlap");
    }
    at = t.end;
  }
  if (at > data_bytes) {
    throw ConfigError(
        "{}: tensor \"{}\" ends at offset {}, but only {} bytes follow the header. The file is truncated.",
        name, header.tensors.back().name, at, data_bytes);
  }
  if (at < data_bytes) {
    throw ConfigError("{}: {} bytes behind the last tensor, from offset {}.", name, data_bytes - at, at);
  }
}

}  // namespace

bool element_count(const std::vector<int64_t>& shape, uint64_t* count) {
  // Zeros are excluded from the product: LibTorch computes strides even for tensors without elements.
  uint64_t product = 1;
  bool empty = false;
  for (int64_t dim : shape) {
    empty |= dim == 0;
    if (dim != 0 && __builtin_mul_overflow(product, static_cast<uint64_t>(dim), &product)) return false;
  }
  *count = empty ? 0 : product;
  return product <= static_cast<uint64_t>(INT64_MAX);
}

SafetensorsHeader parse_header(std::string_view prefix, uint64_t file_size, const std::string& name) {
  std::string_view text = header_text(prefix, file_size, name);
  check_json_frame(text, 8, name);
  SafetensorsHeader header;
  header.data_offset = 8 + text.size();
  HeaderEvents events(header, name);
  nlohmann::json::sax_parse(text.begin(), text.end(), &events);
  check_padding(text, name);
  check_unique_names(header, name);
  for (const TensorEntry& t : header.tensors) check_size(t, name);
  std::ranges::sort(header.tensors, [](const TensorEntry& a, const TensorEntry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  check_coverage(header, file_size - header.data_offset, name);
  return header;
}

}  // namespace yoke::checkpoint::format
