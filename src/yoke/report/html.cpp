#include "yoke/report/html.h"

#include <fmt/core.h>

#include "yoke/report/style.h"

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

std::string html_page(std::string_view title, std::string_view main, std::string_view footer) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{}</title>\n<style>{}{}</style>\n</head>\n<body>\n<main>\n{}<footer>{}</footer>\n</main>\n"
      "</body>\n</html>\n",
      escape(title), kChartStyle, kStyle, main, escape(footer));
}

std::string html_heading(std::string_view title, std::string_view about) {
  return fmt::format("<header><h1>{}</h1><p class=\"about\">{}</p></header>\n", escape(title), escape(about));
}

}  // namespace yoke::report
