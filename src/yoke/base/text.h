// Helpers for texts that people read and type.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace yoke {

// The candidate with the smallest edit distance, or "" if none is similar (more than a third of the
// characters differ).
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

// "a, b, c".
std::string join(const std::vector<std::string>& parts, std::string_view separator = ", ");

// Splits at every `separator`; parts are trimmed; an empty text has no parts.
std::vector<std::string> split(std::string_view text, char separator);

std::string trim(std::string_view text);

// Wraps to at most `width` characters per line, at blanks; longer words are split. At least one line.
std::vector<std::string> wrap(std::string_view text, size_t width);

}  // namespace yoke
