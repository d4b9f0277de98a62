#include "yoke/data/formats/libsvm.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "yoke/base/error.h"
#include "yoke/data/formats/bytes.h"

namespace yoke::data {
namespace {

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r';
}

// The whole of `text` as a number; a leading + is allowed, as files write +1.
std::optional<double> parse_number(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<int64_t> parse_index(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

class Parser {
 public:
  Parser(std::string_view text, int64_t features, const std::string& file)
      : text_(text),
        features_(std::min<int64_t>(features, INT32_MAX)),
        file_(file),
        other_(label_beside_one(text)) {}

  SparseRows parse(int64_t limit) {
    for (size_t at = 0; at < text_.size() && (limit == 0 || rows_.rows() < limit);) {
      const size_t end = std::min(text_.find('\n', at), text_.size());
      ++line_;
      parse_line(text_.substr(at, end - at));
      at = end + 1;
    }
    if (rows_.rows() == 0)
      fail(text_.substr(text_.size()), "expected at least one line 'label index:value …'");
    return std::move(rows_);
  }

 private:
  void parse_line(std::string_view line) {
    line = line.substr(0, line.find('#'));
    std::string_view word = next_word(line);
    if (word.empty()) return;
    rows_.labels.push_back(label(word));
    int64_t last = 0;
    while (!(word = next_word(line)).empty()) last = parse_element(word, last);
    rows_.offsets.push_back(static_cast<int64_t>(rows_.indices.size()));
  }

  // Takes the next word off the front of `line`; empty at its end.
  static std::string_view next_word(std::string_view& line) {
    while (!line.empty() && is_blank(line.front())) line.remove_prefix(1);
    size_t length = 0;
    while (length < line.size() && !is_blank(line[length])) ++length;
    std::string_view word = line.substr(0, length);
    line.remove_prefix(length);
    return word;
  }

  // Which of 0, -1 and 2 the file uses: the first in it, even beyond `limit`, so that the result is the same
  // for any number of rows. 0 if all labels are 1.
  static double label_beside_one(std::string_view text) {
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      std::string_view line = text.substr(at, end - at);
      line = line.substr(0, line.find('#'));
      const std::optional<double> value = parse_number(next_word(line));
      if (value && (*value == 0 || *value == -1 || *value == 2)) return *value;
      at = end + 1;
    }
    return 0;
  }

  float label(std::string_view word) {
    const std::optional<double> value = parse_number(word);
    if (!value || (*value != 0 && *value != 1 && *value != -1 && *value != 2))
      fail(word, "expected labels 0 and 1, -1 and +1, or 1 and 2");
    if (*value != 1 && *value != other_)
      fail(word, fmt::format("labels {} and {} in one file; expected one of them beside 1", other_, *value));
    return *value == std::max(1.0, other_) ? 1.0f : 0.0f;
  }

  // Returns the element's index, from 1.
  int64_t parse_element(std::string_view word, int64_t last) {
    const size_t colon = word.find(':');
    if (colon == std::string_view::npos) fail(word, "expected index:value");
    const std::optional<int64_t> index = parse_index(word.substr(0, colon));
    if (!index || *index < 1) fail(word, "expected an index of at least 1 before ':'");
    if (*index <= last) fail(word, fmt::format("expected an index above {}, the one before it", last));
    if (*index > features_) {
      fail(word, fmt::format("index above the model's {} features (model.features)", features_));
    }
    const std::optional<double> number = parse_number(word.substr(colon + 1));
    const auto value = static_cast<float>(number.value_or(NAN));
    if (!std::isfinite(value)) fail(word, "expected a finite number (float32) after ':'");
    rows_.indices.push_back(static_cast<int32_t>(*index - 1));
    rows_.values.push_back(value);
    return *index;
  }

  [[noreturn]] void fail(std::string_view word, const std::string& expected) const {
    throw ConfigError("{}:{}, byte {}: {}, found {}.", file_, line_, word.data() - text_.data(), expected,
                      word.empty() ? "the end of the file" : quote(word));
  }

  std::string_view text_;
  int64_t features_;
  const std::string& file_;
  int64_t line_ = 0;
  double other_;  // the label beside 1: 0, -1 or 2
  SparseRows rows_;
};

}  // namespace

SparseRows parse_libsvm(std::string_view text, int64_t features, const std::string& file, int64_t limit) {
  return Parser(text, features, file).parse(limit);
}

}  // namespace yoke::data
