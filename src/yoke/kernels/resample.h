// Pictures resampled to another size.
#pragma once

#include <cstdint>
#include <vector>

namespace yoke::kernels {

// Rows of red, green, blue and an unused byte, without gaps.
struct RgbxPixels {
  const uint8_t* bytes;
  int width, height;
};

// A span of the source, in pixels, that becomes `size` pixels of the result.
struct ResampleSpan {
  double first, length;
  int size;
  bool reversed = false;
};

// A triangle filter as wide as a pixel of the result, or of the source if that is wider ("bilinear with
// antialiasing"): what Pillow and torchvision do, without their rounding to bytes. Writes y.size x x.size
// values from 0 to 255 to each of three planes. `space` is reused. Requires spans within the picture and of a
// length above 0.
void resample_rgbx(const RgbxPixels& source, const ResampleSpan& x, const ResampleSpan& y,
                   std::vector<float>& space, float* const (&planes)[3]);

}  // namespace yoke::kernels
