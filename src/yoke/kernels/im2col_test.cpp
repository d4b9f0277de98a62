#include "yoke/kernels/im2col.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace yoke::kernels {
namespace {

TEST(Patches, HoldThePixelUnderEveryTapAndGoBackAsItsAdjoint) {
  for (auto [kernel, stride, padding] : {std::array<int64_t, 3>{3, 1, 1}, {1, 2, 0}, {7, 2, 3}, {2, 1, 0}}) {
    PatchShape s{.channels = 5, .height = 9, .width = 8};
    s.kernel_height = s.kernel_width = kernel;
    s.stride_height = s.stride_width = stride;
    s.padding_height = s.padding_width = padding;
    s.out_height = (s.height + 2 * padding - kernel) / stride + 1;
    s.out_width = (s.width + 2 * padding - kernel) / stride + 1;
    std::vector<float> image(static_cast<size_t>(s.height * s.width * s.channels)), back(image.size(), 9.0f);
    for (size_t i = 0; i < image.size(); ++i) image[i] = static_cast<float>(i + 1);
    std::vector<float> patches(static_cast<size_t>(s.out_height * s.out_width * s.patch()), 9.0f);
    image_to_patches(image.data(), patches.data(), s);
    std::vector<float> expected_back(image.size(), 0.0f);
    size_t at = 0;
    for (int64_t i = 0; i < s.out_height; ++i) {
      for (int64_t j = 0; j < s.out_width; ++j) {
        for (int64_t c = 0; c < s.channels; ++c) {
          for (int64_t t = 0; t < s.taps(); ++t, ++at) {
            int64_t row = i * stride + t / kernel - padding, column = j * stride + t % kernel - padding;
            bool inside = row >= 0 && row < s.height && column >= 0 && column < s.width;
            auto pixel = static_cast<size_t>((row * s.width + column) * s.channels + c);
            EXPECT_EQ(patches[at], inside ? image[pixel] : 0);
            if (inside) expected_back[pixel] += patches[at];
          }
        }
      }
    }
    patches_to_image(patches.data(), back.data(), s);
    EXPECT_EQ(back, expected_back);
  }
}

}  // namespace
}  // namespace yoke::kernels
