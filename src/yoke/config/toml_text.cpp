#include "yoke/config/toml_text.h"

#include <fmt/core.h>

namespace yoke::config {

std::string to_ascii(std::string_view text) {
  std::string out;
  for (char letter : text) {
    auto byte = static_cast<unsigned char>(letter);
    if (byte >= 0x80 || letter == '~') {
      out += fmt::format("~{:02X}", byte);
    } else {
      out += letter;
    }
  }
  return out;
}

std::string from_ascii(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out;
  for (size_t at = 0; at < text.size(); ++at) {
    size_t high = at + 2 < text.size() ? kDigits.find(text[at + 1]) : std::string_view::npos;
    size_t low = at + 2 < text.size() ? kDigits.find(text[at + 2]) : std::string_view::npos;
    bool coded = text[at] == '~' && high != std::string_view::npos && low != std::string_view::npos;
    out += coded ? static_cast<char>(high * 16 + low) : text[at];
    if (coded) at += 2;
  }
  return out;
}

}  // namespace yoke::config
