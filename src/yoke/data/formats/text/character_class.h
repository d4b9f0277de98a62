// The classes of characters that GPT-2's pattern distinguishes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace yoke::data {

enum class CharacterClass : uint8_t {
  kOther,
  kLetter,  // \p{L}
  kNumber,  // \p{N}
  kSpace,   // \s
};

// Unassigned code points are kOther.
CharacterClass class_of(uint32_t code_point);

// Runs of equal class from code point 0 up, each 4 * length + class (tools/write_unicode).
extern const uint32_t kCharacterRuns[];
extern const size_t kCharacterRunCount;

}  // namespace yoke::data
