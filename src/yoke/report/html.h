// Escaping for HTML and SVG.
#pragma once

#include <string>
#include <string_view>

namespace yoke::report {

// Escapes `text` for an element or a quoted attribute. Control characters other than newline and tab become
// U+FFFD.
std::string escape(std::string_view text);

}  // namespace yoke::report
