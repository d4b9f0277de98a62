// Text to tokens.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/data/formats/text/tokenizer.h"
#include "yoke/data/formats/text/word_cache.h"

namespace yoke::data {

// Encodes with a cache of the words it has seen. Not thread-safe: one per thread.
class Encoder {
 public:
  using Take = std::function<void(std::span<const TokenId>)>;

  // `tokenizer` must outlive it.
  explicit Encoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  // Calls `take` with the tokens of `text`, some thousands at a time. They are those that Hugging Face's
  // tokenizers gives with add_special_tokens=False. `what`: the text, for errors. Throws ConfigError for
  // invalid UTF-8 (with the offset), and for a byte that the vocabulary does not have.
  void encode(std::string_view text, const std::string& what, const Take& take);
  std::vector<TokenId> encode(std::string_view text, const std::string& what = "the text");

 private:
  void add_text(std::string_view text);
  void add_word(std::string_view word);
  void merge_word(std::string_view word);
  void add(std::span<const TokenId> tokens);
  void hand_over();

  const Tokenizer& tokenizer_;
  WordCache cache_;
  std::vector<TokenId> ids_;   // not handed over yet
  std::vector<TokenId> word_;  // of the word in progress
  // Of the call in progress.
  const Take* take_ = nullptr;
  std::string_view what_;
};

}  // namespace yoke::data
