// Text in HTML and SVG.
#pragma once

#include <string>
#include <string_view>

namespace yoke::report {

// `text` as it can stand in an element or in a quoted attribute. Control characters but newline and tab,
// which have no place in a document, become U+FFFD.
std::string escape(std::string_view text);

}  // namespace yoke::report
