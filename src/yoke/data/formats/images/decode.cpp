#include "yoke/data/formats/images/decode.h"

#include <algorithm>
#include <cctype>

namespace yoke::data {

using namespace std::string_view_literals;

void decode_picture(std::string_view bytes, const ChooseRegion& choose, Picture& out) {
  if (bytes.starts_with("\xFF\xD8\xFF"sv)) return decode_jpeg(bytes, choose, out);
  if (bytes.starts_with("\x89PNG\r\n\x1A\n"sv)) return decode_png(bytes, choose, out);
  throw BadPicture(bytes.empty() ? "an empty file" : "neither JPEG nor PNG");
}

bool is_picture_name(std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return false;
  std::string ending(name.substr(dot + 1));
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return ending == "jpg" || ending == "jpeg" || ending == "png";
}

}  // namespace yoke::data
