// GPT-2's alphabet: each byte is written as one printable character, so that a vocabulary is text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace yoke::data {

// The character for `byte`: itself where it is printable in Latin-1, else one from U+0100 up ("Ġ" for a
// blank).
uint32_t letter_of(uint8_t byte);

// The bytes written as `letters` (valid UTF-8); empty if a character stands for no byte.
std::optional<std::string> bytes_of_letters(std::string_view letters);

// The reverse, as UTF-8.
std::string letters_of(std::string_view bytes);

}  // namespace yoke::data
