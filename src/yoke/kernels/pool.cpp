#include "yoke/kernels/pool.h"

#include <algorithm>

#include "yoke/kernels/simd.h"

namespace yoke::kernels {
namespace {

// A later value wins when it is greater or NaN, as in LibTorch.
#define YOKE_WINS(value, best) (((value) > (best)) | ((value) != (value)))

YOKE_INLINE void pool_row_pair(const float* __restrict upper, const float* __restrict lower,
                               float* __restrict y, uint8_t* __restrict where, int64_t count, bool relu) {
  for (int64_t j = 0; j < count; ++j) {
    float best = upper[2 * j];
    int32_t tap = 0;
    float next = upper[2 * j + 1];
    bool wins = YOKE_WINS(next, best);
    best = wins ? next : best;
    tap = wins ? 1 : tap;
    next = lower[2 * j];
    wins = YOKE_WINS(next, best);
    best = wins ? next : best;
    tap = wins ? 2 : tap;
    next = lower[2 * j + 1];
    wins = YOKE_WINS(next, best);
    best = wins ? next : best;
    tap = wins ? 3 : tap;
    bool cut = relu & (best <= 0);
    y[j] = cut ? 0 : best;
    where[j] = static_cast<uint8_t>(cut ? kNoTap : tap);
  }
}

YOKE_INLINE void max_pool_planes_body(const float* x, float* y, uint8_t* where, int64_t planes,
                                      const PoolShape& shape, bool relu) {
  for (int64_t p = 0; p < planes; ++p, x += shape.height * shape.width) {
    for (int64_t i = 0; i < shape.out_height; ++i, y += shape.out_width, where += shape.out_width) {
      const float* upper = x + 2 * i * shape.width;
      pool_row_pair(upper, upper + shape.width, y, where, shape.out_width, relu);
    }
  }
}

YOKE_INLINE void spread_row_pair(const float* __restrict grad_y, const uint8_t* __restrict where,
                                 float* __restrict upper, float* __restrict lower, int64_t count) {
  for (int64_t j = 0; j < count; ++j) {
    float g = grad_y[j];
    int32_t tap = where[j];
    upper[2 * j] = tap == 0 ? g : 0;
    upper[2 * j + 1] = tap == 1 ? g : 0;
    lower[2 * j] = tap == 2 ? g : 0;
    lower[2 * j + 1] = tap == 3 ? g : 0;
  }
}

YOKE_INLINE void max_pool_planes_backward_body(const float* grad_y, const uint8_t* where, float* grad_x,
                                               int64_t planes, const PoolShape& shape) {
  int64_t w = shape.width;
  for (int64_t p = 0; p < planes; ++p, grad_x += shape.height * w) {
    for (int64_t i = 0; i < shape.out_height; ++i, grad_y += shape.out_width, where += shape.out_width) {
      float* upper = grad_x + 2 * i * w;
      spread_row_pair(grad_y, where, upper, upper + w, shape.out_width);
      if (w % 2 != 0) upper[w - 1] = upper[2 * w - 1] = 0;
    }
    if (shape.height % 2 != 0) std::fill_n(grad_x + (shape.height - 1) * w, w, 0.0f);
  }
}

YOKE_INLINE void take_tap(const float* __restrict x, float* __restrict best, uint8_t* __restrict where,
                          int64_t channels, uint8_t tap) {
  for (int64_t c = 0; c < channels; ++c) {
    bool wins = YOKE_WINS(x[c], best[c]);
    best[c] = wins ? x[c] : best[c];
    where[c] = wins ? tap : where[c];
  }
}

YOKE_INLINE void cut_negative(float* __restrict best, uint8_t* __restrict where, int64_t channels) {
  for (int64_t c = 0; c < channels; ++c) {
    bool cut = best[c] <= 0;
    best[c] = cut ? 0 : best[c];
    where[c] = cut ? kNoTap : where[c];
  }
}

YOKE_INLINE void pool_pixel(const float* image, float* y, uint8_t* where, int64_t channels,
                            const PoolShape& s, int64_t i, int64_t j) {
  bool first = true;
  for (int64_t a = 0; a < s.kernel; ++a) {
    int64_t row = i * s.stride + a - s.padding;
    if (row < 0 || row >= s.height) continue;
    for (int64_t b = 0; b < s.kernel; ++b) {
      int64_t column = j * s.stride + b - s.padding;
      if (column < 0 || column >= s.width) continue;
      const float* x = image + (row * s.width + column) * channels;
      auto tap = static_cast<uint8_t>(a * s.kernel + b);
      if (first) {
        std::copy_n(x, channels, y);
        std::fill_n(where, channels, tap);
        first = false;
      } else {
        take_tap(x, y, where, channels, tap);
      }
    }
  }
}

YOKE_INLINE void max_pool_pixels_body(const float* x, float* y, uint8_t* where, int64_t images,
                                      int64_t channels, const PoolShape& shape, bool relu) {
  for (int64_t n = 0; n < images; ++n, x += shape.height * shape.width * channels) {
    for (int64_t i = 0; i < shape.out_height; ++i) {
      for (int64_t j = 0; j < shape.out_width; ++j, y += channels, where += channels) {
        pool_pixel(x, y, where, channels, shape, i, j);
        if (relu) cut_negative(y, where, channels);
      }
    }
  }
}

YOKE_INLINE void add_tap(const float* __restrict grad_y, const uint8_t* __restrict where,
                         float* __restrict grad_x, int64_t channels, uint8_t tap) {
  for (int64_t c = 0; c < channels; ++c) grad_x[c] += where[c] == tap ? grad_y[c] : 0;
}

YOKE_INLINE void spread_pixel(const float* grad_y, const uint8_t* where, float* image, int64_t channels,
                              const PoolShape& s, int64_t i, int64_t j) {
  for (int64_t a = 0; a < s.kernel; ++a) {
    int64_t row = i * s.stride + a - s.padding;
    if (row < 0 || row >= s.height) continue;
    for (int64_t b = 0; b < s.kernel; ++b) {
      int64_t column = j * s.stride + b - s.padding;
      if (column < 0 || column >= s.width) continue;
      float* grad_x = image + (row * s.width + column) * channels;
      add_tap(grad_y, where, grad_x, channels, static_cast<uint8_t>(a * s.kernel + b));
    }
  }
}

YOKE_INLINE void max_pool_pixels_backward_body(const float* grad_y, const uint8_t* where, float* grad_x,
                                               int64_t images, int64_t channels, const PoolShape& shape) {
  int64_t size = shape.height * shape.width * channels;
  for (int64_t n = 0; n < images; ++n, grad_x += size) {
    std::fill_n(grad_x, size, 0.0f);
    for (int64_t i = 0; i < shape.out_height; ++i) {
      for (int64_t j = 0; j < shape.out_width; ++j, grad_y += channels, where += channels) {
        spread_pixel(grad_y, where, grad_x, channels, shape, i, j);
      }
    }
  }
}

}  // namespace

YOKE_KERNEL(max_pool_planes,
            (const float* x, float* y, uint8_t* where, int64_t planes, const PoolShape& shape, bool relu),
            (x, y, where, planes, shape, relu))
YOKE_KERNEL(max_pool_planes_backward,
            (const float* grad_y, const uint8_t* where, float* grad_x, int64_t planes,
             const PoolShape& shape),
            (grad_y, where, grad_x, planes, shape))
YOKE_KERNEL(max_pool_pixels,
            (const float* x, float* y, uint8_t* where, int64_t images, int64_t channels,
             const PoolShape& shape, bool relu),
            (x, y, where, images, channels, shape, relu))
YOKE_KERNEL(max_pool_pixels_backward,
            (const float* grad_y, const uint8_t* where, float* grad_x, int64_t images, int64_t channels,
             const PoolShape& shape),
            (grad_y, where, grad_x, images, channels, shape))

namespace reference {

float max_of_window(const float* plane, const PoolShape& s, int64_t row, int64_t column, bool relu,
                    uint8_t* tap) {
  float best = 0;
  *tap = kNoTap;
  for (int64_t a = 0; a < s.kernel; ++a) {
    for (int64_t b = 0; b < s.kernel; ++b) {
      int64_t i = row * s.stride + a - s.padding, j = column * s.stride + b - s.padding;
      if (i < 0 || i >= s.height || j < 0 || j >= s.width) continue;
      float value = plane[i * s.width + j];
      if (*tap != kNoTap && !YOKE_WINS(value, best)) continue;
      best = value;
      *tap = static_cast<uint8_t>(a * s.kernel + b);
    }
  }
  if (relu && best <= 0) {
    best = 0;
    *tap = kNoTap;
  }
  return best;
}

}  // namespace reference
#undef YOKE_WINS
}  // namespace yoke::kernels
