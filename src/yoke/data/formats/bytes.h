// Decodes integers from bytes, and quotes bytes for error texts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace yoke::data {

// All require that the bytes from `at` are inside `bytes`.
inline uint16_t read_le16(std::string_view bytes, size_t at) {
  auto byte = [&](size_t i) { return static_cast<uint16_t>(static_cast<uint8_t>(bytes[at + i])); };
  return static_cast<uint16_t>(byte(0) | byte(1) << 8);
}
inline uint32_t read_le32(std::string_view bytes, size_t at) {
  return static_cast<uint32_t>(read_le16(bytes, at)) | static_cast<uint32_t>(read_le16(bytes, at + 2)) << 16;
}
inline uint32_t read_be32(std::string_view bytes, size_t at) {
  return __builtin_bswap32(read_le32(bytes, at));
}

// The first bytes in quotes, non-printable ones as \xNN: safe for a terminal.
std::string quote(std::string_view bytes);

}  // namespace yoke::data
