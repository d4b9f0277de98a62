// Whatever the bytes, parse_tokens gives tokens that lie inside them, or an Error.
#include "yoke/data/formats/tokens.h"

#include <cstdlib>

#include "yoke/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    const yoke::data::TokenFile file = yoke::data::parse_tokens(bytes, "fuzz");
    constexpr int64_t kVocabulary = 50257;
    yoke::data::check_vocabulary(file, 0, file.count(), kVocabulary, "fuzz");
    for (int64_t i = 0; i < file.count(); ++i) {
      if (file.at(i) >= kVocabulary) std::abort();
    }
  } catch (const yoke::Error&) {
  }
  return 0;
}
