// Cuts text into words as GPT-2 does, before byte pairs are merged inside each.
#pragma once

#include <cstddef>
#include <string_view>

namespace yoke::data {

// The length of the word at `at`, by the pattern
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// whose alternatives cover every text. Requires valid UTF-8 and at < text.size(); the result is above 0.
size_t word_length(std::string_view text, size_t at);

}  // namespace yoke::data
