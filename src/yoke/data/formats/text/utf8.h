// UTF-8: validation, one character at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace yoke::data {

// Length of the longest valid beginning of `text`: text.size() if all of it is valid.
size_t valid_utf8_length(std::string_view text);

struct Character {
  uint32_t code_point = 0;
  size_t bytes = 1;
};

// The character at `at`. Requires valid UTF-8 and at < text.size().
inline Character character_at(std::string_view text, size_t at) {
  auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[at + i])); };
  const uint32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xE0) return {(first & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (first < 0xF0) return {(first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(first & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

void append_utf8(std::string& text, uint32_t code_point);

// The beginning of `text` that can be shown now: up to a character that is still incomplete at its end.
// Invalid bytes are replaced by U+FFFD. `taken`: bytes of `text` it stands for.
std::string printable_utf8(std::string_view text, size_t& taken);

}  // namespace yoke::data
