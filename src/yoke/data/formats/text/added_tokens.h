// Tokens that are found in text as they are, before it is cut into words: "<|endoftext|>".
#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/data/formats/text/pair_table.h"

namespace yoke::data {

struct AddedToken {
  std::string content;
  TokenId id = 0;
  bool lstrip = false;  // takes the spaces before it
  bool rstrip = false;  // and after it
  bool normalized = true;
};

// A part of a text: one of these tokens, or text between them.
struct TextPart {
  std::string_view text{};
  TokenId token = -1;  // -1: text
};

class AddedTokens {
 public:
  // Requires that no content is empty.
  explicit AddedTokens(std::vector<AddedToken> tokens);

  // Calls `take` with the parts of `text` in order: at each place the longest token, leftmost first. Parts of
  // text are not empty. Requires valid UTF-8.
  void cut(std::string_view text, const std::function<void(const TextPart&)>& take) const;

 private:
  // The next token from `at` on, with its place; nullptr: none.
  const AddedToken* find(std::string_view text, size_t& at) const;

  std::vector<AddedToken> tokens_;                 // longest first
  std::array<std::vector<size_t>, 256> by_first_;  // indices in that order
  int only_first_ = -1;                            // the byte that all of them begin with; -1: several
};

}  // namespace yoke::data
