// Whatever the bytes, decode_picture gives the window it was asked for, or throws an Error.
#include <cstdlib>

#include "yoke/data/formats/images/decode.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  yoke::data::Picture picture;
  try {
    yoke::data::decode_picture(
        bytes,
        [](yoke::data::Size whole) -> yoke::data::Request {
          if (int64_t{whole.width} * whole.height > 1 << 18) throw yoke::data::BadPicture("too slow to fuzz");
          return {{whole.width * 0.25, whole.height * 0.25, whole.width * 0.5, whole.height * 0.5}, {16, 16}};
        },
        picture);
    const auto pixels = static_cast<size_t>(picture.size.width) * static_cast<size_t>(picture.size.height);
    if (pixels == 0 || picture.pixels.size() != 4 * pixels) std::abort();
  } catch (const yoke::Error&) {
  }
  return 0;
}
