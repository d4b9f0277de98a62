// Whatever the text, a tokenizer gives its bytes back, or an Error for invalid UTF-8; whatever the tokenizer
// file, it is read and encodes, or there is an Error.
#include "yoke/data/formats/text/encoder.h"

#include <cstdlib>

#include "yoke/base/error.h"
#include "yoke/data/formats/text/test_tokenizer.h"

namespace {

void encode(const yoke::data::Tokenizer& tokenizer, std::string_view text, bool gives_back) {
  try {
    yoke::data::Encoder encoder(tokenizer);
    const std::vector<yoke::data::TokenId> ids = encoder.encode(text);
    if (tokenizer.decode(ids) != text && gives_back) std::abort();
    if (encoder.encode(text) != ids) std::abort();  // from the cache
  } catch (const yoke::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const yoke::data::Tokenizer small = yoke::data::small_tokenizer_made();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  encode(small, text, true);
  try {
    const yoke::data::Tokenizer read(yoke::data::parse_tokenizer(text, "fuzz"));
    encode(read, text, false);
  } catch (const yoke::Error&) {
  }
  return 0;
}
