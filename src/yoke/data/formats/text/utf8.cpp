#include "yoke/data/formats/text/utf8.h"

#include <cstring>

namespace yoke::data {
namespace {

struct Lead {
  size_t bytes = 0;       // of the character; 0: no character starts with this byte
  uint8_t lowest = 0x80;  // of the second byte: no overlong forms, no surrogates, nothing above U+10FFFF
  uint8_t highest = 0xBF;
};

Lead lead_of(uint8_t first) {
  if (first < 0x80) return {1};
  if (first < 0xC2) return {0};
  if (first < 0xE0) return {2};
  if (first == 0xE0) return {3, 0xA0};
  if (first == 0xED) return {3, 0x80, 0x9F};
  if (first < 0xF0) return {3};
  if (first == 0xF0) return {4, 0x90};
  if (first < 0xF4) return {4};
  if (first == 0xF4) return {4, 0x80, 0x8F};
  return {0};
}

// Bytes of the valid character at the start of `text`; 0: invalid; `incomplete` if it is only cut off.
size_t character_length(std::string_view text, bool& incomplete) {
  const Lead lead = lead_of(static_cast<uint8_t>(text[0]));
  incomplete = false;
  for (size_t i = 1; i < lead.bytes; ++i) {
    if (i == text.size()) {
      incomplete = true;
      return 0;
    }
    const auto byte = static_cast<uint8_t>(text[i]);
    if (byte < (i == 1 ? lead.lowest : 0x80) || byte > (i == 1 ? lead.highest : 0xBF)) return 0;
  }
  return lead.bytes;
}

}  // namespace

size_t valid_utf8_length(std::string_view text) {
  size_t at = 0;
  bool incomplete = false;
  while (at < text.size()) {
    uint64_t eight = 0;
    if (text.size() - at >= sizeof eight) {
      std::memcpy(&eight, text.data() + at, sizeof eight);
      if ((eight & 0x8080808080808080u) == 0) {
        at += sizeof eight;
        continue;
      }
    }
    const size_t bytes = character_length(text.substr(at, 4), incomplete);
    if (bytes == 0) return at;
    at += bytes;
  }
  return at;
}

void append_utf8(std::string& text, uint32_t code_point) {
  auto put = [&](uint32_t byte) { text += static_cast<char>(static_cast<uint8_t>(byte)); };
  if (code_point < 0x80) return put(code_point);
  if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
  } else {
    if (code_point < 0x10000) {
      put(0xE0 | code_point >> 12);
    } else {
      put(0xF0 | code_point >> 18);
      put(0x80 | (code_point >> 12 & 0x3F));
    }
    put(0x80 | (code_point >> 6 & 0x3F));
  }
  put(0x80 | (code_point & 0x3F));
}

std::string printable_utf8(std::string_view text, size_t& taken) {
  std::string shown;
  taken = 0;
  while (taken < text.size()) {
    const size_t valid = valid_utf8_length(text.substr(taken));
    shown += text.substr(taken, valid);
    taken += valid;
    if (taken == text.size()) break;
    bool incomplete = false;
    character_length(text.substr(taken), incomplete);
    if (incomplete) break;
    append_utf8(shown, 0xFFFD);
    ++taken;
  }
  return shown;
}

}  // namespace yoke::data
