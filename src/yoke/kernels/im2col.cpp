#include "yoke/kernels/im2col.h"

#include <algorithm>

#include "yoke/kernels/simd.h"

namespace yoke::kernels {
namespace {

// The pixel under tap (a, b) of output (i, j), or -1 in the padding.
YOKE_INLINE int64_t pixel_under(const PatchShape& s, int64_t i, int64_t j, int64_t a, int64_t b) {
  int64_t row = i * s.stride_height + a - s.padding_height;
  int64_t column = j * s.stride_width + b - s.padding_width;
  bool inside = row >= 0 && row < s.height && column >= 0 && column < s.width;
  return inside ? row * s.width + column : -1;
}

YOKE_INLINE void image_to_patches_body(const float* image, float* patches, const PatchShape& s) {
  int64_t taps = s.taps();
  for (int64_t i = 0; i < s.out_height; ++i) {
    for (int64_t j = 0; j < s.out_width; ++j, patches += s.patch()) {
      for (int64_t a = 0; a < s.kernel_height; ++a) {
        for (int64_t b = 0; b < s.kernel_width; ++b) {
          int64_t pixel = pixel_under(s, i, j, a, b);
          float* to = patches + a * s.kernel_width + b;
          const float* from = image + pixel * s.channels;
          if (pixel < 0) {
            for (int64_t c = 0; c < s.channels; ++c) to[c * taps] = 0;
          } else {
            for (int64_t c = 0; c < s.channels; ++c) to[c * taps] = from[c];
          }
        }
      }
    }
  }
}

YOKE_INLINE void patches_to_image_body(const float* patches, float* image, const PatchShape& s) {
  int64_t taps = s.taps();
  std::fill_n(image, s.height * s.width * s.channels, 0.0f);
  for (int64_t i = 0; i < s.out_height; ++i) {
    for (int64_t j = 0; j < s.out_width; ++j, patches += s.patch()) {
      for (int64_t a = 0; a < s.kernel_height; ++a) {
        for (int64_t b = 0; b < s.kernel_width; ++b) {
          int64_t pixel = pixel_under(s, i, j, a, b);
          if (pixel < 0) continue;
          const float* from = patches + a * s.kernel_width + b;
          float* to = image + pixel * s.channels;
          for (int64_t c = 0; c < s.channels; ++c) to[c] += from[c * taps];
        }
      }
    }
  }
}

}  // namespace

YOKE_KERNEL(image_to_patches, (const float* image, float* patches, const PatchShape& shape),
            (image, patches, shape))
YOKE_KERNEL(patches_to_image, (const float* patches, float* image, const PatchShape& shape),
            (patches, image, shape))

}  // namespace yoke::kernels
