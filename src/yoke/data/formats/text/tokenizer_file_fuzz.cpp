// Changes a tokenizer file at some places: it is still read, and then encodes, or there is an Error.
#include "yoke/data/formats/text/tokenizer_file.h"

#include "yoke/base/error.h"
#include "yoke/data/formats/text/encoder.h"
#include "yoke/data/formats/text/test_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string good = yoke::data::small_tokenizer().dump();
  std::string text = good;
  for (size_t i = 0; i + 2 < size; i += 3)
    text[(data[i] * 256u + data[i + 1]) % text.size()] = static_cast<char>(data[i + 2]);
  try {
    const yoke::data::Tokenizer read(yoke::data::parse_tokenizer(text, "fuzz"));
    yoke::data::Encoder(read).encode("the théâtre <|endoftext|> 42's end  \n");
  } catch (const yoke::Error&) {
  }
  return 0;
}
