// From text files to a folder that data.name = "tokens" reads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace yoke::data {

struct TokenFolderOptions {
  std::vector<std::string> files;
  std::filesystem::path folder;
  std::string tokenizer;    // a tokenizer.json; empty: each byte is a token
  double validation = 0.1;  // share of the tokens, from the end
};

struct TokenFolder {
  int64_t vocabulary = 0;
  int width = 2;  // bytes of a token
  int64_t text_bytes = 0;
  int64_t train = 0, validation = 0;  // tokens
};

// Writes train.bin, val.bin (unless `validation` is 0), and the tokenizer as tokenizer.json. Files follow
// each other, with "<|endoftext|>" between them if the tokenizer has it. An older train.bin is removed before
// anything else changes, and the new one appears last: a folder that has it is whole. Throws ConfigError: a
// file that is empty, unreadable or not UTF-8 (only with a tokenizer), too little text, a full disk.
TokenFolder write_token_folder(const TokenFolderOptions& options);

}  // namespace yoke::data
