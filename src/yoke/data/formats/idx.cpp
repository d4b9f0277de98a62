#include "yoke/data/formats/idx.h"

#include "yoke/base/error.h"
#include "yoke/data/formats/bytes.h"

namespace yoke::data {
namespace {

constexpr uint8_t kUnsignedByte = 0x08;

void check_header(std::string_view bytes, size_t dims, const std::string& file) {
  const size_t header = 4 + 4 * dims;
  if (bytes.size() < header) {
    throw ConfigError(
        "{}, byte {}: the file ends inside the IDX header of {} bytes. Download the file again.", file,
        bytes.size(), header);
  }
  if (bytes[0] != 0 || bytes[1] != 0) {
    throw ConfigError("{}, byte 0: expected two zero bytes of an IDX file, found {}. Is it the right file?",
                      file, quote(bytes.substr(0, 2)));
  }
  if (const auto type = static_cast<uint8_t>(bytes[2]); type != kUnsignedByte) {
    throw ConfigError("{}, byte 2: expected IDX type 0x08 (unsigned bytes), found 0x{:02x}.", file, type);
  }
  if (const auto found = static_cast<uint8_t>(bytes[3]); found != dims) {
    throw ConfigError(
        "{}, byte 3: expected an IDX array of {} dimensions, found {}. Images and labels swapped?", file,
        dims, found);
  }
}

}  // namespace

IdxArray parse_idx(std::string_view bytes, size_t dims, const std::string& file) {
  check_header(bytes, dims, file);
  IdxArray array;
  uint64_t expected = 1;
  for (size_t d = 0; d < dims; ++d) {
    const size_t at = 4 + 4 * d;
    const uint32_t size = read_be32(bytes, at);
    if (size == 0) throw ConfigError("{}, byte {}: dimension {} of the IDX array is 0.", file, at, d);
    if (__builtin_mul_overflow(expected, uint64_t{size}, &expected)) {
      throw ConfigError("{}, byte {}: the sizes in the IDX header overflow 64 bits.", file, at);
    }
    array.shape.push_back(size);
  }
  array.values = bytes.substr(4 + 4 * dims);
  if (array.values.size() != expected) {
    throw ConfigError(
        "{}, byte {}: the header declares {} values, but the file has {}. Download the file again.", file,
        bytes.size(), expected, array.values.size());
  }
  return array;
}

}  // namespace yoke::data
