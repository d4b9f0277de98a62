#include "yoke/data/formats/text/character_class.h"

#include <vector>

namespace yoke::data {
namespace {

// One byte for each code point up to the last that is not kOther.
std::vector<CharacterClass> expand() {
  std::vector<CharacterClass> classes;
  size_t used = 0;
  for (size_t i = 0; i < kCharacterRunCount; ++i) {
    const auto one = static_cast<CharacterClass>(kCharacterRuns[i] % 4);
    classes.insert(classes.end(), kCharacterRuns[i] / 4, one);
    if (one != CharacterClass::kOther) used = classes.size();
  }
  classes.resize(used);
  return classes;
}

}  // namespace

CharacterClass class_of(uint32_t code_point) {
  static const std::vector<CharacterClass> classes = expand();
  return code_point < classes.size() ? classes[code_point] : CharacterClass::kOther;
}

}  // namespace yoke::data
