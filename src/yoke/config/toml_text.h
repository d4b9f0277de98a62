// Text encoding for toml++.
#pragma once

#include <string>
#include <string_view>

namespace yoke::config {

// toml++ 3.3 has undefined behaviour for some non-ASCII characters (found by fuzzing), so they are encoded as
// ~XX, byte by byte, and decoded in the values by from_ascii().
std::string to_ascii(std::string_view text);
std::string from_ascii(std::string_view text);

}  // namespace yoke::config
