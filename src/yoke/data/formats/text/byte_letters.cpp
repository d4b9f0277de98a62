#include "yoke/data/formats/text/byte_letters.h"

#include <array>

#include "yoke/data/formats/text/utf8.h"

namespace yoke::data {
namespace {

constexpr uint32_t kMoved = 0x100;       // the first character for bytes that are not printable
constexpr size_t kLetters = 0x100 + 68;  // there are 68 of these

bool is_printable(uint32_t byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<uint16_t, 256> letters{};
  std::array<int16_t, kLetters> bytes{};
};

Alphabet make_alphabet() {
  Alphabet alphabet;
  alphabet.bytes.fill(-1);
  uint32_t moved = kMoved;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const uint32_t letter = is_printable(byte) ? byte : moved++;
    alphabet.letters[byte] = static_cast<uint16_t>(letter);
    alphabet.bytes[letter] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

const Alphabet& alphabet() {
  static const Alphabet made = make_alphabet();
  return made;
}

}  // namespace

uint32_t letter_of(uint8_t byte) {
  return alphabet().letters[byte];
}

std::optional<std::string> bytes_of_letters(std::string_view letters) {
  std::string bytes;
  for (size_t at = 0; at < letters.size();) {
    const Character one = character_at(letters, at);
    if (one.code_point >= kLetters || alphabet().bytes[one.code_point] < 0) return std::nullopt;
    bytes += static_cast<char>(alphabet().bytes[one.code_point]);
    at += one.bytes;
  }
  return bytes;
}

std::string letters_of(std::string_view bytes) {
  std::string letters;
  for (char byte : bytes) append_utf8(letters, letter_of(static_cast<uint8_t>(byte)));
  return letters;
}

}  // namespace yoke::data
