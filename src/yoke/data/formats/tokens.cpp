#include "yoke/data/formats/tokens.h"

#include <algorithm>

#include "yoke/base/error.h"

namespace yoke::data {
namespace {

// Read as tokens these would be 55432 and 55713, above GPT-2's vocabulary: no flat file begins so.
constexpr uint32_t kLlmcGpt2 = 20240520;
constexpr uint32_t kLlmcLlama3 = 20240801;
constexpr size_t kHeaderBytes = 256 * 4;

TokenFile parse_llmc(std::string_view bytes, const std::string& file) {
  if (bytes.size() < kHeaderBytes) {
    throw ConfigError("{}, byte {}: the file ends inside the llm.c header of {} bytes. Fetch the file again.",
                      file, bytes.size(), kHeaderBytes);
  }
  if (const uint32_t version = read_le32(bytes, 4); version != 1) {
    throw ConfigError("{}, byte 4: expected version 1 of llm.c's token files, found {}.", file, version);
  }
  const uint64_t count = read_le32(bytes, 8);
  const size_t held = bytes.size() - kHeaderBytes;
  if (count == 0) throw ConfigError("{}, byte 8: the header says that there are no tokens.", file);
  if (held != count * 2) {
    throw ConfigError(
        "{}, byte 8: the header promises {} tokens of 2 bytes, {} bytes follow it. Write the file again.",
        file, count, held);
  }
  return {bytes.substr(kHeaderBytes), static_cast<int64_t>(kHeaderBytes)};
}

}  // namespace

TokenFile parse_tokens(std::string_view bytes, const std::string& file) {
  const uint32_t magic = bytes.size() >= 4 ? read_le32(bytes, 0) : 0;
  if (magic == kLlmcLlama3) {
    throw ConfigError("{}, byte 0: tokens of 32 bits (llm.c for Llama 3); expected tokens of 16 bits.", file);
  }
  if (magic == kLlmcGpt2) return parse_llmc(bytes, file);
  if (bytes.empty()) throw ConfigError("{}, byte 0: the file is empty; expected tokens of 2 bytes.", file);
  if (bytes.size() % 2 != 0) {
    throw ConfigError(
        "{}, byte {}: half a token at the end; expected tokens of 2 bytes. Write the file again.", file,
        bytes.size() - 1);
  }
  return {bytes, 0};
}

void check_vocabulary(const TokenFile& tokens, int64_t begin, int64_t end, int64_t vocabulary,
                      const std::string& file) {
  if (vocabulary > UINT16_MAX) return;
  // Largest first: a loop without exits is vectorised, and files of gigabytes are looked at in seconds.
  int64_t largest = 0;
  for (int64_t i = begin; i < end; ++i) largest = std::max(largest, tokens.at(i));
  if (largest < vocabulary) return;
  for (int64_t i = begin; i < end; ++i) {
    if (tokens.at(i) < vocabulary) continue;
    throw ConfigError(
        "{}, byte {}: token {} is outside the model's vocabulary of {}. Set model.vocabulary above it.", file,
        tokens.start + 2 * i, tokens.at(i), vocabulary);
  }
}

}  // namespace yoke::data
