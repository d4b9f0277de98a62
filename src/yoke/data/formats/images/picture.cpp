#include "yoke/data/formats/images/picture.h"

#include <algorithm>
#include <cmath>

namespace yoke::data {

void check_size(Size size) {
  if (size.width <= 0 || size.height <= 0)
    throw BadPicture(fmt::format("a picture of {}x{} pixels", size.width, size.height));
  if (int64_t{size.width} * size.height > kMostPixels)
    throw BadPicture(
        fmt::format("{}x{} pixels; at most {} pixels are accepted", size.width, size.height, kMostPixels));
}

Window window_of(const Region& region, Size size) {
  auto floor_in = [](double at, int most) { return std::clamp(static_cast<int>(std::floor(at)), 0, most); };
  auto ceil_in = [](double at, int least, int most) {
    return std::clamp(static_cast<int>(std::ceil(at)), least, most);
  };
  const int x = floor_in(region.x, size.width - 1), y = floor_in(region.y, size.height - 1);
  const int right = ceil_in(region.x + region.width, x + 1, size.width);
  const int bottom = ceil_in(region.y + region.height, y + 1, size.height);
  return {x, y, right - x, bottom - y};
}

}  // namespace yoke::data
