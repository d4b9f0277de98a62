// JPEG and PNG files to pixels.
#pragma once

#include <string_view>

#include "yoke/data/formats/images/picture.h"

namespace yoke::data {

// Decodes the part of a picture that `choose` returns for its size into `out`, whose memory is reused. Reads
// all kinds of JPEG that libjpeg-turbo knows (CMYK and greyscale too) and all kinds of PNG; transparency is
// dropped, 16 bits are reduced to 8. JPEG is reduced to 1/2, 1/4 or 1/8 while it is decoded where the region
// stays at least as large as the target. Throws BadPicture: neither JPEG nor PNG, damaged, ends early, or too
// large. ConfigError: built without the libraries. Thread-safe.
void decode_picture(std::string_view bytes, const ChooseRegion& choose, Picture& out);

// Whether the ending of a file's name says JPEG or PNG, in any case.
bool is_picture_name(std::string_view name);

// The parts of decode_picture(), for bytes of that kind.
void decode_jpeg(std::string_view bytes, const ChooseRegion& choose, Picture& out);
void decode_png(std::string_view bytes, const ChooseRegion& choose, Picture& out);

}  // namespace yoke::data
