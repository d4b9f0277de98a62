#include "yoke/data/formats/text/encoder.h"

#include "yoke/base/error.h"
#include "yoke/data/formats/text/utf8.h"
#include "yoke/data/formats/text/words.h"

namespace yoke::data {
namespace {

constexpr size_t kHandedOver = 1 << 14;  // tokens

void check_utf8(std::string_view text, std::string_view what) {
  const size_t valid = valid_utf8_length(text);
  if (valid == text.size()) return;
  throw ConfigError(
      "{}, byte {}: not valid UTF-8 (0x{:02x}). Convert the text to UTF-8, or leave out the tokenizer to "
      "train "
      "on bytes.",
      what, valid, static_cast<uint8_t>(text[valid]));
}

}  // namespace

void Encoder::encode(std::string_view text, const std::string& what, const Take& take) {
  check_utf8(text, what);
  take_ = &take;
  what_ = what;
  ids_.clear();
  tokenizer_.exact_.cut(text, [&](const TextPart& outer) {
    if (outer.token >= 0) return add({&outer.token, 1});
    tokenizer_.normalized_.cut(outer.text, [&](const TextPart& part) {
      if (part.token >= 0) return add({&part.token, 1});
      add_text(part.text);
    });
  });
  hand_over();
}

std::vector<TokenId> Encoder::encode(std::string_view text, const std::string& what) {
  std::vector<TokenId> all;
  encode(text, what, [&](std::span<const TokenId> some) { all.insert(all.end(), some.begin(), some.end()); });
  return all;
}

void Encoder::add_text(std::string_view text) {
  std::string prefixed;
  if (tokenizer_.spec_.add_prefix_space && text[0] != ' ') text = prefixed.assign(" ").append(text);
  if (!tokenizer_.spec_.cut_words) return add_word(text);
  for (size_t at = 0; at < text.size();) {
    const size_t length = word_length(text, at);
    add_word(text.substr(at, length));
    at += length;
  }
}

void Encoder::add_word(std::string_view word) {
  std::span<const TokenId> known = cache_.find(word);
  if (known.empty()) {
    merge_word(word);
    cache_.put(word, word_);
    known = word_;
  }
  add(known);
}

void Encoder::add(std::span<const TokenId> tokens) {
  ids_.insert(ids_.end(), tokens.begin(), tokens.end());
  if (ids_.size() >= kHandedOver) hand_over();
}

void Encoder::merge_word(std::string_view word) {
  word_.clear();
  if (tokenizer_.spec_.ignore_merges) {
    if (auto whole = tokenizer_.whole_word(word)) return word_.push_back(*whole);
  }
  for (char byte : word) {
    const TokenId id = tokenizer_.token_of_byte(static_cast<uint8_t>(byte));
    if (id < 0)
      throw ConfigError("{}: byte 0x{:02x} has no token in {}. Use a tokenizer with all 256 bytes.", what_,
                        static_cast<uint8_t>(byte), tokenizer_.file());
    word_.push_back(id);
  }
  merge_pairs(tokenizer_.pairs_, word_);
}

void Encoder::hand_over() {
  if (!ids_.empty()) (*take_)(ids_);
  ids_.clear();
}

}  // namespace yoke::data
