#include "yoke/checkpoint/format/piece_name.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "yoke/base/text.h"

namespace yoke::checkpoint {
namespace {

constexpr const char* kChannelsLast = "channels_last";
constexpr size_t kMostDimensions = 8;
constexpr int64_t kMostElements = int64_t{1} << 47;
constexpr size_t kMostNumbers = 257;  // of a slice: its dimension and its ranges

// Numbers with `separator` between them; empty where there is anything else.
std::vector<int64_t> numbers(const std::string& text, char separator) {
  std::vector<int64_t> all;
  for (const std::string& part : split(text, separator)) {
    int64_t number = 0;
    auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    if (part.empty() || error != std::errc() || end != part.data() + part.size() || number < 0) return {};
    all.push_back(number);
  }
  return all;
}

// One word behind an '@'. False: it is none of ours.
bool read_word(const std::string& word, PieceAt& at) {
  if (word == kChannelsLast) return at.channels_last = true;
  if (word.starts_with("shape=")) {
    at.shape = numbers(word.substr(6), 'x');
    return !at.shape.empty() && at.shape.size() <= kMostDimensions;
  }
  if (word.starts_with("slice=")) {
    std::vector<int64_t> slice = numbers(word.substr(6), ',');
    if (slice.size() < 3 || slice.size() % 2 == 0 || slice.size() > kMostNumbers) return false;
    at.dim = slice[0];
    at.ranges.clear();
    for (size_t i = 1; i < slice.size(); i += 2) at.ranges.push_back({slice[i], slice[i + 1]});
    return std::ranges::all_of(at.ranges, [](const PieceRange& range) { return range.extent > 0; });
  }
  std::vector<int64_t> run = numbers(word, ':');
  if (run.size() != 2 || run[1] <= run[0]) return false;
  at.begin = run[0];
  at.end = run[1];
  return true;
}

// Elements of the slice, -1 where they are more than can be or the slice leaves the shape.
int64_t elements_of(const PieceAt& at) {
  if (at.dim >= static_cast<int64_t>(at.shape.size())) return -1;
  int64_t elements = 1, extent = 0;  // of the whole tensor; of the slice, along its dimension
  for (int64_t size : at.shape) {
    if (size > 0 && elements > kMostElements / size) return -1;
    elements *= size;
  }
  if (at.dim < 0) return elements;
  const int64_t size = at.shape[static_cast<size_t>(at.dim)];
  for (const PieceRange& range : at.ranges) {
    if (range.offset > size || range.extent > size - range.offset || extent > size - range.extent) return -1;
    extent += range.extent;
  }
  return elements / size * extent;  // size is not 0: a range lies inside
}

bool is_consistent(const PieceAt& at) {
  if (at.shape.empty()) return true;  // an older version's: checked against the model's tensor
  const int64_t elements = elements_of(at);
  return elements >= 0 && at.end <= elements;
}

}  // namespace

std::string piece_name(const std::string& whole, const PieceAt& at) {
  if (at.is_whole()) return whole;
  std::string name = whole;
  if (!at.shape.empty()) name += fmt::format("@shape={}", fmt::join(at.shape, "x"));
  if (at.dim >= 0) name += fmt::format("@slice={}", at.dim);
  for (const PieceRange& range : at.ranges) name += fmt::format(",{},{}", range.offset, range.extent);
  if (at.end > 0) name += fmt::format("@{}:{}", at.begin, at.end);
  if (at.channels_last) name += fmt::format("@{}", kChannelsLast);
  return name;
}

std::optional<NamedPiece> parse_piece_name(const std::string& name) {
  std::vector<std::string> words = split(name, '@');
  NamedPiece piece;
  size_t first = words.size();  // of ours
  while (first > 1 && read_word(words[first - 1], piece.at)) --first;
  if (first == words.size() || piece.at.is_whole() || !is_consistent(piece.at)) return std::nullopt;
  piece.whole = words[0];
  for (size_t i = 1; i < first; ++i) piece.whole += "@" + words[i];
  return piece;
}

}  // namespace yoke::checkpoint
