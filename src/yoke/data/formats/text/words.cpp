#include "yoke/data/formats/text/words.h"

#include <array>

#include "yoke/data/formats/text/character_class.h"
#include "yoke/data/formats/text/utf8.h"

namespace yoke::data {
namespace {

std::array<CharacterClass, 128> make_ascii() {
  std::array<CharacterClass, 128> classes{};
  for (size_t i = 0; i < classes.size(); ++i) classes[i] = class_of(static_cast<uint32_t>(i));
  return classes;
}

struct Classified {
  CharacterClass kind;
  size_t bytes;
};

Classified classify(std::string_view text, size_t at) {
  static const std::array<CharacterClass, 128> ascii = make_ascii();
  const auto first = static_cast<uint8_t>(text[at]);
  if (first < 128) return {ascii[first], 1};
  const Character one = character_at(text, at);
  return {class_of(one.code_point), one.bytes};
}

// The end of the characters of class `kind` from `at` on. `last`: where the last of them begins.
size_t end_of_run(std::string_view text, size_t at, CharacterClass kind, size_t* last = nullptr) {
  while (at < text.size()) {
    const Classified one = classify(text, at);
    if (one.kind != kind) break;
    if (last != nullptr) *last = at;
    at += one.bytes;
  }
  return at;
}

size_t contraction_length(std::string_view text, size_t at) {
  const std::string_view rest = text.substr(at, 3);
  for (std::string_view one : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"})
    if (rest.starts_with(one)) return one.size();
  return 0;
}

}  // namespace

size_t word_length(std::string_view text, size_t at) {
  if (text[at] == '\'')
    if (const size_t length = contraction_length(text, at); length > 0) return length;
  const Classified first = classify(text, at);
  if (first.kind != CharacterClass::kSpace) return end_of_run(text, at, first.kind) - at;
  if (text[at] == ' ' && at + 1 < text.size()) {
    const Classified second = classify(text, at + 1);
    if (second.kind != CharacterClass::kSpace) return end_of_run(text, at + 1, second.kind) - at;
  }
  // The last space before a word is left to that word, or stands alone.
  size_t last = at;
  const size_t end = end_of_run(text, at, CharacterClass::kSpace, &last);
  return (end == text.size() || last == at ? end : last) - at;
}

}  // namespace yoke::data
