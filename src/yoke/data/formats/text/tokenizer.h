// Byte-level BPE as GPT-2 uses it: text to tokens and back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/data/formats/text/added_tokens.h"
#include "yoke/data/formats/text/pair_table.h"

namespace yoke::data {

// The content of a tokenizer file (tokenizer_file.h).
struct TokenizerSpec {
  std::string file;                 // for errors
  std::vector<std::string> tokens;  // the bytes of each id; empty: no such token
  std::vector<Merge> merges;        // by rank
  std::vector<AddedToken> added;
  bool add_prefix_space = false;  // a blank before text that does not start with one
  bool cut_words = true;          // by GPT-2's pattern (words.h); otherwise all text is one word
  bool ignore_merges = false;     // a word that is a token is not put together from others
};

// Immutable and thread-safe.
class Tokenizer {
 public:
  explicit Tokenizer(TokenizerSpec spec);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  const std::string& file() const { return spec_.file; }
  // 1 + the largest id.
  int64_t vocabulary() const { return static_cast<int64_t>(spec_.tokens.size()); }
  // The bytes that a token stands for; an added token for its content. Throws ConfigError for an id without a
  // token.
  std::string_view bytes_of(int64_t id) const;
  std::string decode(std::span<const TokenId> ids) const;
  // The id of an added token ("<|endoftext|>").
  std::optional<TokenId> added_token(std::string_view content) const;
  // The id of a single byte, before merging; -1: none.
  TokenId token_of_byte(uint8_t byte) const { return of_bytes_[byte]; }

 private:
  friend class Encoder;
  std::optional<TokenId> whole_word(std::string_view word) const;

  TokenizerSpec spec_;
  std::vector<TokenId> of_bytes_;  // 256
  PairTable pairs_;
  AddedTokens exact_, normalized_;  // the former are found first
  struct Words;
  std::unique_ptr<Words> words_;  // with ignore_merges
};

}  // namespace yoke::data
