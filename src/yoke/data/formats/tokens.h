// Files of 16-bit or 32-bit tokens: flat (nanoGPT) or after a header of 1,024 bytes (llm.c, version 1).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "yoke/data/formats/bytes.h"

namespace yoke::data {

struct TokenFile {
  std::string_view tokens;  // `width` bytes per token, little-endian
  int64_t start = 0;        // offset of the first token in the file
  int width = 2;            // 2 or 4

  int64_t count() const { return static_cast<int64_t>(tokens.size()) / width; }
  int64_t at(int64_t i) const {
    return width == 2 ? read_le16(tokens, static_cast<size_t>(i) * 2)
                      : read_le32(tokens, static_cast<size_t>(i) * 4);
  }
};

// Detects the format and checks the size. llm.c's headers contain the token width. A flat file has 32-bit
// tokens if `vocabulary` does not fit into 16 bits, or if every second 16-bit word of its start is 0 (and not
// all are); otherwise 16-bit ones. Throws ConfigError (with `file` and offset): empty, an incomplete last
// token, fewer tokens than the header says.
TokenFile parse_tokens(std::string_view bytes, const std::string& file, int64_t vocabulary = 0);

// Throws ConfigError with the offset of the first token >= `vocabulary` among tokens begin..end-1.
void check_vocabulary(const TokenFile& tokens, int64_t begin, int64_t end, int64_t vocabulary,
                      const std::string& file);

}  // namespace yoke::data
