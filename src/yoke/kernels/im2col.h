// Convolution as a matrix product on channels-last images: the patches under the kernel as rows.
#pragma once

#include <cstdint>

namespace yoke::kernels {

struct PatchShape {
  int64_t channels = 0, height = 0, width = 0;  // of the input
  int64_t out_height = 0, out_width = 0;
  int64_t kernel_height = 1, kernel_width = 1;
  int64_t stride_height = 1, stride_width = 1;
  int64_t padding_height = 0, padding_width = 0;

  int64_t taps() const { return kernel_height * kernel_width; }
  int64_t patch() const { return channels * taps(); }
};

// One image [height, width, channels] to rows [out_height * out_width, channels * taps]. Within a row the
// channel is the slow index and the tap the fast one, as in a weight [out, channels, kernel_height,
// kernel_width], which is used without reordering.
void image_to_patches(const float* image, float* patches, const PatchShape& shape);

// The inverse: every pixel becomes the sum of its copies in `patches`. Overwrites `image`.
void patches_to_image(const float* patches, float* image, const PatchShape& shape);

}  // namespace yoke::kernels
