#include "yoke/data/formats/bytes.h"

#include <fmt/core.h>

namespace yoke::data {

std::string quote(std::string_view bytes) {
  constexpr size_t kShown = 24;
  std::string text = "'";
  for (char c : bytes.substr(0, kShown)) {
    if (c >= ' ' && c <= '~') {
      text += c;
    } else {
      text += fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
    }
  }
  return text + (bytes.size() > kShown ? "…'" : "'");
}

}  // namespace yoke::data
