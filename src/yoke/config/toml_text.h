// Text as toml++ may see it.
#pragma once

#include <string>
#include <string_view>

namespace yoke::config {

// toml++ 3.3 runs into undefined behaviour on some letters beyond ASCII (found by fuzzing), so it gets to see
// none: they are written as ~XX, byte by byte, and put back in the values by from_ascii().
std::string to_ascii(std::string_view text);
std::string from_ascii(std::string_view text);

}  // namespace yoke::config
