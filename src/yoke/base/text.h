// Small helpers for texts that people read and type.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace yoke {

// The candidate with the smallest edit distance, or "" where none is near (more than a third of the
// letters differ).
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

// "a, b, c".
std::string join(const std::vector<std::string>& parts, std::string_view separator = ", ");

// Cuts at every `separator`; parts are trimmed of blanks; an empty text has no parts.
std::vector<std::string> split(std::string_view text, char separator);

std::string trim(std::string_view text);

// The text in lines of at most `width` letters, broken at blanks; longer words are cut. At least one line.
std::vector<std::string> wrap(std::string_view text, size_t width);

}  // namespace yoke
