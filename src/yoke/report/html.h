// Escaping for HTML and SVG, and the frame of a page.
#pragma once

#include <string>
#include <string_view>

namespace yoke::report {

// Escapes `text` for an element or a quoted attribute. Control characters other than newline and tab become
// U+FFFD.
std::string escape(std::string_view text);

// A whole page in the report's style. `main` is HTML, the others are text.
std::string html_page(std::string_view title, std::string_view main,
                      std::string_view footer = "Written by Yoke.");
// Its heading: a title and a line below it, both text.
std::string html_heading(std::string_view title, std::string_view about);

}  // namespace yoke::report
