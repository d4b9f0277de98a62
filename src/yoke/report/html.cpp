#include "yoke/report/html.h"

namespace yoke::report {

std::string escape(std::string_view text) {
  std::string safe;
  safe.reserve(text.size());
  for (char letter : text) {
    bool control =
        (static_cast<unsigned char>(letter) < 0x20 && letter != '\n' && letter != '\t') || letter == 0x7f;
    if (control) {
      safe += "\xef\xbf\xbd";
    } else if (letter == '&') {
      safe += "&amp;";
    } else if (letter == '<') {
      safe += "&lt;";
    } else if (letter == '>') {
      safe += "&gt;";
    } else if (letter == '"') {
      safe += "&quot;";
    } else if (letter == '\'') {
      safe += "&#39;";
    } else {
      safe += letter;
    }
  }
  return safe;
}

}  // namespace yoke::report
