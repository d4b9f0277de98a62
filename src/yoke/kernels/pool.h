// Max pooling, with or without ReLU before it, that remembers in a byte which tap of the window won.
#pragma once

#include <cstdint>

namespace yoke::kernels {

inline constexpr uint8_t kNoTap = 255;  // ReLU cut the whole window off

struct PoolShape {
  int64_t height = 0, width = 0;          // of the input
  int64_t out_height = 0, out_width = 0;  // of the output
  int64_t kernel = 2, stride = 2, padding = 0;
};

// Planes stored one after the other (NCHW). Requires: kernel 2, stride 2, no padding, out = in / 2 rounded
// down.
void max_pool_planes(const float* x, float* y, uint8_t* where, int64_t planes, const PoolShape& shape,
                     bool relu);
void max_pool_planes_backward(const float* grad_y, const uint8_t* where, float* grad_x, int64_t planes,
                              const PoolShape& shape);

// Images with channels last (NHWC). Requires: kernel * kernel < 255, and every window holds at least one
// pixel.
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
