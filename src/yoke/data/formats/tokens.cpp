#include "yoke/data/formats/tokens.h"

#include <algorithm>

#include "yoke/base/error.h"

namespace yoke::data {
namespace {

// Read as tokens these would be 55432 and 55713, above GPT-2's vocabulary: no flat file starts like this.
constexpr uint32_t kLlmcGpt2 = 20240520;
constexpr uint32_t kLlmcLlama3 = 20240801;
constexpr size_t kHeaderBytes = 256 * 4;

constexpr int64_t kMost16 = int64_t{1} << 16;

// 16-bit text never has 0 in every second place; small 32-bit numbers always do.
bool looks_like_32_bits(std::string_view bytes) {
  constexpr size_t kLookAt = 1024;  // tokens
  if (bytes.size() % 4 != 0 || bytes.size() < 8) return false;
  bool any = false;
  for (size_t i = 0; i < std::min(kLookAt, bytes.size() / 4); ++i) {
    if (read_le16(bytes, 4 * i + 2) != 0) return false;
    any = any || read_le16(bytes, 4 * i) != 0;
  }
  return any;
}

template <int width>
int64_t largest_of(const TokenFile& tokens, int64_t begin, int64_t end) {
  int64_t largest = 0;
  for (int64_t i = begin; i < end; ++i) {
    const auto at = static_cast<size_t>(i) * width;
    largest =
        std::max<int64_t>(largest, width == 2 ? read_le16(tokens.tokens, at) : read_le32(tokens.tokens, at));
  }
  return largest;
}

TokenFile parse_llmc(std::string_view bytes, const std::string& file, int width) {
  if (bytes.size() < kHeaderBytes) {
    throw ConfigError(
        "{}, byte {}: the file ends inside the llm.c header of {} bytes. Download the file again.", file,
        bytes.size(), kHeaderBytes);
  }
  const uint32_t expected = width == 2 ? 1 : 7;  // as llm.c numbers files of GPT-2 and of Llama 3
  if (const uint32_t version = read_le32(bytes, 4); version != expected) {
    throw ConfigError("{}, byte 4: expected version {} of llm.c's token files, found {}.", file, expected,
                      version);
  }
  const uint64_t count = read_le32(bytes, 8);
  const size_t held = bytes.size() - kHeaderBytes;
  if (count == 0) throw ConfigError("{}, byte 8: the header declares no tokens.", file);
  if (held != count * static_cast<uint64_t>(width)) {
    throw ConfigError(
        "{}, byte 8: the header declares {} tokens of {} bytes, but {} bytes follow. Write the file again.",
        file, count, width, held);
  }
  return {bytes.substr(kHeaderBytes), static_cast<int64_t>(kHeaderBytes), width};
}

}  // namespace

TokenFile parse_tokens(std::string_view bytes, const std::string& file, int64_t vocabulary) {
  const uint32_t magic = bytes.size() >= 4 ? read_le32(bytes, 0) : 0;
  if (magic == kLlmcLlama3) return parse_llmc(bytes, file, 4);
  if (magic == kLlmcGpt2) return parse_llmc(bytes, file, 2);
  if (bytes.empty())
    throw ConfigError("{}, byte 0: the file is empty; expected tokens of 2 or 4 bytes.", file);
  const int width = vocabulary > kMost16 || looks_like_32_bits(bytes) ? 4 : 2;
  if (const size_t rest = bytes.size() % static_cast<size_t>(width); rest != 0) {
    throw ConfigError(
        "{}, byte {}: incomplete token at the end; expected tokens of {} bytes{}. Write the file again.",
        file, bytes.size() - rest, width,
        width == 4 ? fmt::format(" (for a vocabulary of {})", vocabulary) : "");
  }
  return {bytes, 0, width};
}

void check_vocabulary(const TokenFile& tokens, int64_t begin, int64_t end, int64_t vocabulary,
                      const std::string& file) {
  if (tokens.width == 2 && vocabulary > UINT16_MAX) return;
  // Maximum first: a loop without exits is vectorised, and files of gigabytes are checked in seconds.
  const int64_t largest =
      tokens.width == 2 ? largest_of<2>(tokens, begin, end) : largest_of<4>(tokens, begin, end);
  if (largest < vocabulary) return;
  for (int64_t i = begin; i < end; ++i) {
    if (tokens.at(i) < vocabulary) continue;
    throw ConfigError(
        "{}, byte {}: token {} is outside the model's vocabulary of {} (tokens of {} bytes). Set "
        "model.vocabulary above it.",
        file, tokens.start + tokens.width * i, tokens.at(i), vocabulary, tokens.width);
  }
}

}  // namespace yoke::data
