#include "yoke/kernels/pool.h"

#include <algorithm>

#include "yoke/kernels/simd.h"

namespace yoke::kernels {
namespace {

// A later value wins when it is greater or NaN, as in LibTorch.
#define YOKE_WINS(value, best) (((value) > (best)) | ((value) != (value)))

// Even and odd lanes of two vectors, and the inverse.
#if defined(__x86_64__)
#define YOKE_EVEN 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define YOKE_ODD 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#define YOKE_LOW 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define YOKE_HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#else
#define YOKE_EVEN 0, 2, 4, 6, 8, 10, 12, 14
#define YOKE_ODD 1, 3, 5, 7, 9, 11, 13, 15
#define YOKE_LOW 0, 8, 1, 9, 2, 10, 3, 11
#define YOKE_HIGH 4, 12, 5, 13, 6, 14, 7, 15
#endif
using Bytes = uint8_t __attribute__((vector_size(kLanes)));
using LooseBytes = uint8_t __attribute__((vector_size(kLanes), aligned(1), may_alias));

struct Best {
  Vec value;
  IntVec tap;
};

YOKE_INLINE void take_if_better(Best& best, const Vec& value, int32_t tap) {
  IntVec wins = (IntVec)(value > best.value) | (IntVec)(value != value);
  best.value = select(wins, value, best.value);
  best.tap = (wins & tap) | (~wins & best.tap);
}

YOKE_INLINE void pool_vector(const float* upper, const float* lower, float* y, uint8_t* where, bool relu) {
  Vec a = load(upper), b = load(upper + kLanes), c = load(lower), d = load(lower + kLanes);
  Best best{__builtin_shufflevector(a, b, YOKE_EVEN), IntVec{}};
  take_if_better(best, __builtin_shufflevector(a, b, YOKE_ODD), 1);
  take_if_better(best, __builtin_shufflevector(c, d, YOKE_EVEN), 2);
  take_if_better(best, __builtin_shufflevector(c, d, YOKE_ODD), 3);
  if (relu) {
    IntVec cut = (IntVec)(best.value <= Vec{});
    best.value = select(cut, Vec{}, best.value);
    best.tap |= cut & int32_t{kNoTap};
  }
  store(y, best.value);
  *reinterpret_cast<LooseBytes*>(where) = __builtin_convertvector(best.tap, Bytes);
}

YOKE_INLINE void pool_scalar(const float* upper, const float* lower, float* y, uint8_t* where, bool relu) {
  const float values[4] = {upper[0], upper[1], lower[0], lower[1]};
  float best = values[0];
  uint8_t tap = 0;
  for (uint8_t t = 1; t < 4; ++t) {
    if (!YOKE_WINS(values[t], best)) continue;
    best = values[t];
    tap = t;
  }
  bool cut = relu && best <= 0;
  *y = cut ? 0 : best;
  *where = cut ? kNoTap : tap;
}

// Rows are short, so vectors run past their ends: what they read there is not used, and what they write there
// is overwritten by the next row. Only the very end is processed one by one.
YOKE_INLINE void max_pool_planes_body(const float* x, float* y, uint8_t* where, int64_t planes,
                                      const PoolShape& s, bool relu) {
  const float* x_end = x + planes * s.height * s.width;
  const float* y_end = y + planes * s.out_height * s.out_width;
  for (int64_t p = 0; p < planes; ++p, x += s.height * s.width) {
    for (int64_t i = 0; i < s.out_height; ++i, y += s.out_width, where += s.out_width) {
      const float* upper = x + 2 * i * s.width;
      const float* lower = upper + s.width;
      int64_t j = 0;
      for (; j < s.out_width && x_end - lower >= 2 * (j + kLanes) && y_end - y >= j + kLanes; j += kLanes) {
        pool_vector(upper + 2 * j, lower + 2 * j, y + j, where + j, relu);
      }
      for (; j < s.out_width; ++j) pool_scalar(upper + 2 * j, lower + 2 * j, y + j, where + j, relu);
    }
  }
}

// One row of the gradient: taps `even` and `even` + 1. Writes whole vectors while they end before `end`.
YOKE_INLINE void spread_row(const float* grad_y, const uint8_t* where, float* row, const float* end,
                            int64_t count, int64_t readable, int32_t even) {
  int64_t j = 0;
  for (; j < count && end - row >= 2 * (j + kLanes) && readable >= j + kLanes; j += kLanes) {
    IntVec tap = __builtin_convertvector(*reinterpret_cast<const LooseBytes*>(where + j), IntVec);
    Vec g = load(grad_y + j);
    Vec first = (Vec)((IntVec)g & (IntVec)(tap == even));
    Vec second = (Vec)((IntVec)g & (IntVec)(tap == even + 1));
    store(row + 2 * j, __builtin_shufflevector(first, second, YOKE_LOW));
    store(row + 2 * j + kLanes, __builtin_shufflevector(first, second, YOKE_HIGH));
  }
  for (; j < count; ++j) {
    row[2 * j] = where[j] == even ? grad_y[j] : 0;
    row[2 * j + 1] = where[j] == even + 1 ? grad_y[j] : 0;
  }
}

YOKE_INLINE void max_pool_planes_backward_body(const float* grad_y, const uint8_t* where, float* grad_x,
                                               int64_t planes, const PoolShape& s) {
  int64_t w = s.width;
  const float* end = grad_x + planes * s.height * w;
  int64_t readable = planes * s.out_height * s.out_width;
  for (int64_t p = 0; p < planes; ++p, grad_x += s.height * w) {
    for (int64_t i = 0; i < s.out_height; ++i) {
      float* upper = grad_x + 2 * i * w;
      spread_row(grad_y, where, upper, end, s.out_width, readable, 0);
      if (w % 2 != 0) upper[w - 1] = 0;
      spread_row(grad_y, where, upper + w, end, s.out_width, readable, 2);
      if (w % 2 != 0) upper[2 * w - 1] = 0;
      grad_y += s.out_width;
      where += s.out_width;
      readable -= s.out_width;
    }
    if (s.height % 2 != 0) std::fill_n(grad_x + (s.height - 1) * w, w, 0.0f);
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
#undef YOKE_EVEN
#undef YOKE_ODD
#undef YOKE_LOW
#undef YOKE_HIGH
}  // namespace yoke::kernels
