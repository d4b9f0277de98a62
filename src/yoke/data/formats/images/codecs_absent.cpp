// Built without libjpeg-turbo or libpng.
#include "yoke/data/formats/images/decode.h"

namespace yoke::data {
namespace {

[[noreturn]] void throw_absent() {
  throw ConfigError(
      "data.name = \"images\": this program was built without libjpeg-turbo and libpng. Install "
      "libjpeg62-turbo-dev (libjpeg-turbo8-dev on Ubuntu) and libpng-dev, then build again.");
}

}  // namespace

void decode_jpeg(std::string_view, const ChooseRegion&, Picture&) {
  throw_absent();
}

void decode_png(std::string_view, const ChooseRegion&, Picture&) {
  throw_absent();
}

}  // namespace yoke::data
