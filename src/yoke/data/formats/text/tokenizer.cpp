#include "yoke/data/formats/text/tokenizer.h"

#include <algorithm>
#include <unordered_map>

#include "yoke/base/error.h"

namespace yoke::data {
namespace {

std::vector<AddedToken> of_kind(const std::vector<AddedToken>& all, bool normalized) {
  std::vector<AddedToken> some;
  std::ranges::copy_if(all, std::back_inserter(some),
                       [&](const AddedToken& token) { return token.normalized == normalized; });
  return some;
}

}  // namespace

struct Tokenizer::Words {
  std::unordered_map<std::string_view, TokenId> ids;
};

Tokenizer::Tokenizer(TokenizerSpec spec)
    : spec_(std::move(spec)),
      of_bytes_(256, -1),
      pairs_(spec_.merges),
      exact_(of_kind(spec_.added, false)),
      normalized_(of_kind(spec_.added, true)),
      words_(std::make_unique<Words>()) {
  for (size_t id = 0; id < spec_.tokens.size(); ++id) {
    const std::string& bytes = spec_.tokens[id];
    if (bytes.size() == 1) of_bytes_[static_cast<uint8_t>(bytes[0])] = static_cast<TokenId>(id);
    if (spec_.ignore_merges && !bytes.empty()) words_->ids.emplace(bytes, static_cast<TokenId>(id));
  }
}

Tokenizer::~Tokenizer() = default;

std::string_view Tokenizer::bytes_of(int64_t id) const {
  if (id < 0 || id >= vocabulary() || spec_.tokens[static_cast<size_t>(id)].empty())
    throw ConfigError("{}: token {} is not in its vocabulary of {}. Is it the tokenizer of this model?",
                      spec_.file, id, vocabulary());
  return spec_.tokens[static_cast<size_t>(id)];
}

std::string Tokenizer::decode(std::span<const TokenId> ids) const {
  std::string text;
  for (TokenId id : ids) text += bytes_of(id);
  return text;
}

std::optional<TokenId> Tokenizer::added_token(std::string_view content) const {
  auto found = std::ranges::find(spec_.added, content, &AddedToken::content);
  if (found == spec_.added.end()) return std::nullopt;
  return found->id;
}

std::optional<TokenId> Tokenizer::whole_word(std::string_view word) const {
  auto found = words_->ids.find(word);
  if (found == words_->ids.end()) return std::nullopt;
  return found->second;
}

}  // namespace yoke::data
