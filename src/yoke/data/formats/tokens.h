// Files of tokens of 16 bits: flat (nanoGPT) or behind a header of 1,024 bytes (llm.c, version 1).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "yoke/data/formats/bytes.h"

namespace yoke::data {

struct TokenFile {
  std::string_view tokens;  // two bytes a token, little-endian
  int64_t start = 0;        // offset of the first token in the file

  int64_t count() const { return static_cast<int64_t>(tokens.size() / 2); }
  int64_t at(int64_t i) const { return read_le16(tokens, static_cast<size_t>(i) * 2); }
};

// Tells the two kinds apart by the header's magic number and checks the size. Throws ConfigError (names
// `file` and offset): empty, an odd number of bytes, a count that the file does not hold, 32-bit tokens.
TokenFile parse_tokens(std::string_view bytes, const std::string& file);

// Throws ConfigError that names the offset of the first token >= `vocabulary` among tokens begin..end-1.
void check_vocabulary(const TokenFile& tokens, int64_t begin, int64_t end, int64_t vocabulary,
                      const std::string& file);

}  // namespace yoke::data
