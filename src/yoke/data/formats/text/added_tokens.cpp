#include "yoke/data/formats/text/added_tokens.h"

#include <algorithm>

#include "yoke/data/formats/text/character_class.h"
#include "yoke/data/formats/text/utf8.h"

namespace yoke::data {
namespace {

bool is_space(const Character& one) {
  return class_of(one.code_point) == CharacterClass::kSpace;
}

// Where the spaces that end at `end` begin, not before `least`.
size_t before_spaces(std::string_view text, size_t least, size_t end) {
  while (end > least) {
    size_t at = end - 1;
    while (at > least && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
    if (!is_space(character_at(text, at))) break;
    end = at;
  }
  return end;
}

size_t after_spaces(std::string_view text, size_t at) {
  while (at < text.size()) {
    const Character one = character_at(text, at);
    if (!is_space(one)) break;
    at += one.bytes;
  }
  return at;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::ranges::stable_sort(tokens_, std::greater<>(),
                           [](const AddedToken& token) { return token.content.size(); });
  for (size_t i = 0; i < tokens_.size(); ++i)
    by_first_[static_cast<uint8_t>(tokens_[i].content[0])].push_back(i);
  const auto used = std::ranges::count_if(by_first_, [](const auto& list) { return !list.empty(); });
  if (used == 1) only_first_ = static_cast<uint8_t>(tokens_[0].content[0]);
}

const AddedToken* AddedTokens::find(std::string_view text, size_t& at) const {
  for (; at < text.size(); ++at) {
    if (only_first_ >= 0) at = text.find(static_cast<char>(only_first_), at);
    if (at >= text.size()) break;
    for (size_t i : by_first_[static_cast<uint8_t>(text[at])])
      if (text.substr(at).starts_with(tokens_[i].content)) return &tokens_[i];
  }
  at = text.size();
  return nullptr;
}

void AddedTokens::cut(std::string_view text, const std::function<void(const TextPart&)>& take) const {
  size_t done = 0;
  while (done < text.size()) {
    size_t begin = tokens_.empty() ? text.size() : done;
    const AddedToken* token = find(text, begin);
    size_t end = token != nullptr ? begin + token->content.size() : begin;
    if (token != nullptr && token->lstrip) begin = before_spaces(text, done, begin);
    if (token != nullptr && token->rstrip) end = after_spaces(text, end);
    if (begin > done) take({text.substr(done, begin - done)});
    if (token != nullptr) take({text.substr(begin, end - begin), token->id});
    done = end;
  }
}

}  // namespace yoke::data
