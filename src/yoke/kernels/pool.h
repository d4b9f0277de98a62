// Max pooling, with or without preceding ReLU, that stores the winning tap of the window as a byte.
#pragma once

#include <cstdint>

namespace yoke::kernels {

inline constexpr uint8_t kNoTap = 255;  // ReLU zeroed the whole window

struct PoolShape {
  int64_t height = 0, width = 0;          // of the input
  int64_t out_height = 0, out_width = 0;  // of the output
  int64_t kernel = 2, stride = 2, padding = 0;
};

// Planes (NCHW). Requires: kernel 2, stride 2, no padding, out = in / 2 rounded down.
void max_pool_planes(const float* x, float* y, uint8_t* where, int64_t planes, const PoolShape& shape,
                     bool relu);
void max_pool_planes_backward(const float* grad_y, const uint8_t* where, float* grad_x, int64_t planes,
                              const PoolShape& shape);

// Channels-last images (NHWC). Requires: kernel * kernel < 255, and at least one pixel per window.
void max_pool_pixels(const float* x, float* y, uint8_t* where, int64_t images, int64_t channels,
                     const PoolShape& shape, bool relu);
void max_pool_pixels_backward(const float* grad_y, const uint8_t* where, float* grad_x, int64_t images,
                              int64_t channels, const PoolShape& shape);

namespace reference {
// One window of one plane: the value, and the tap (row * kernel + column, or kNoTap).
float max_of_window(const float* plane, const PoolShape& shape, int64_t row, int64_t column, bool relu,
                    uint8_t* tap);
}  // namespace reference

}  // namespace yoke::kernels
