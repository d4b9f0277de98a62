// A decoded picture, or a part of one, and what is said of pictures before they are decoded.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "yoke/base/error.h"

namespace yoke::data {

struct Size {
  int width = 0;
  int height = 0;
  bool operator==(const Size&) const = default;
};

// In pixels of the whole picture; edges may lie between pixels.
struct Region {
  double x = 0, y = 0, width = 0, height = 0;
  bool operator==(const Region&) const = default;
};

struct Picture {
  Size size;
  std::vector<uint8_t> pixels;  // rows of red, green, blue and an unused byte
  Region region;                // what was asked for, in pixels of this picture
};

// Which part of a picture of this size is needed, and the size it will be resampled to: a decoder may return
// it reduced, but not below `target`.
struct Request {
  Region region;
  Size target;
};
using ChooseRegion = std::function<Request(Size)>;

// A file that is no picture, is damaged, or exceeds the limits. The text has no file name.
class BadPicture : public Error {
 public:
  explicit BadPicture(const std::string& text) : Error(ExitCode::kUsage, text) {}
};

// Larger pictures are refused before memory is allocated: 256 MB decoded.
inline constexpr int64_t kMostPixels = int64_t{1} << 26;

// Throws BadPicture for an empty or too large picture.
void check_size(Size size);

// The smallest rectangle of whole pixels around `region`, within a picture of `size`.
struct Window {
  int x = 0, y = 0, width = 0, height = 0;
};
Window window_of(const Region& region, Size size);

}  // namespace yoke::data
