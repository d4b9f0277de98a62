#include "yoke/kernels/resample.h"

#include <algorithm>
#include <cmath>

#include "yoke/base/error.h"
#include "yoke/kernels/simd.h"

namespace yoke::kernels {
namespace {

using Quad = float __attribute__((vector_size(16), aligned(4), may_alias));

// Each result is the sum of `taps` neighbours from `first` on, weighted; unused weights are 0.
struct Filter {
  int taps = 0;
  std::vector<int> first;
  std::vector<float> weights;
};

Filter triangle(const ResampleSpan& span, int available) {
  const double scale = span.length / span.size, radius = std::max(1.0, scale);
  Filter filter;
  filter.taps = std::min(available, static_cast<int>(std::ceil(2 * radius)) + 1);
  filter.first.resize(static_cast<size_t>(span.size));
  filter.weights.assign(static_cast<size_t>(span.size) * static_cast<size_t>(filter.taps), 0.f);
  const int least = std::max(0, static_cast<int>(std::floor(span.first)));
  const int most = std::min(available, static_cast<int>(std::ceil(span.first + span.length)));
  for (int i = 0; i < span.size; ++i) {
    const double centre = span.first + (i + 0.5) * scale;
    const int wanted = std::max(least, static_cast<int>(std::floor(centre - radius + 0.5)));
    const int first = std::clamp(wanted, 0, available - filter.taps);
    float* weights = filter.weights.data() + static_cast<size_t>(i) * static_cast<size_t>(filter.taps);
    double sum = 0;
    for (int k = 0; k < filter.taps; ++k) {
      const int at = first + k;
      if (at < least || at >= most) continue;
      const double weight = std::max(0.0, 1 - std::abs(at + 0.5 - centre) / radius);
      weights[k] = static_cast<float>(weight);
      sum += weight;
    }
    YOKE_CHECK(sum > 0, "pixel {} of {} from {} on has no source", i, span.length, span.first);
    for (int k = 0; k < filter.taps; ++k) weights[k] /= static_cast<float>(sum);
    filter.first[static_cast<size_t>(i)] = first;
  }
  return filter;
}

YOKE_INLINE void blend_rows_body(const uint8_t* rows, int64_t row_bytes, const float* weights, int taps,
                                 float* __restrict__ out) {
  for (int64_t i = 0; i < row_bytes; ++i) out[i] = weights[0] * static_cast<float>(rows[i]);
  int k = 1;
  for (; k + 1 < taps; k += 2) {
    const uint8_t *one = rows + k * row_bytes, *two = one + row_bytes;
    const float a = weights[k], b = weights[k + 1];
    for (int64_t i = 0; i < row_bytes; ++i)
      out[i] += a * static_cast<float>(one[i]) + b * static_cast<float>(two[i]);
  }
  if (k < taps) {
    const uint8_t* one = rows + k * row_bytes;
    for (int64_t i = 0; i < row_bytes; ++i) out[i] += weights[k] * static_cast<float>(one[i]);
  }
}

YOKE_INLINE void blend_columns_body(const float* row, const int* first, const float* weights, int taps,
                                    int size, int64_t step, float* red, float* green, float* blue) {
  for (int i = 0; i < size; ++i, red += step, green += step, blue += step) {
    const float* pixels = row + 4 * first[i];
    const float* weight = weights + static_cast<int64_t>(i) * taps;
    Quad sum{};
    for (int k = 0; k < taps; ++k) sum += weight[k] * *reinterpret_cast<const Quad*>(pixels + 4 * k);
    *red = sum[0];
    *green = sum[1];
    *blue = sum[2];
  }
}

YOKE_KERNEL(blend_rows, (const uint8_t* rows, int64_t row_bytes, const float* weights, int taps, float* out),
            (rows, row_bytes, weights, taps, out))
YOKE_KERNEL(blend_columns,
            (const float* row, const int* first, const float* weights, int taps, int size, int64_t step,
             float* red, float* green, float* blue),
            (row, first, weights, taps, size, step, red, green, blue))

}  // namespace

// Rows first: they are contiguous, and fewer are left for the columns.
void resample_rgbx(const RgbxPixels& source, const ResampleSpan& x, const ResampleSpan& y,
                   std::vector<float>& space, float* const (&planes)[3]) {
  const Filter columns = triangle(x, source.width), rows = triangle(y, source.height);
  const int64_t row_bytes = int64_t{4} * source.width;
  space.resize(static_cast<size_t>(row_bytes));
  for (int i = 0; i < y.size; ++i) {
    blend_rows(source.bytes + rows.first[static_cast<size_t>(i)] * row_bytes, row_bytes,
               rows.weights.data() + static_cast<int64_t>(i) * rows.taps, rows.taps, space.data());
    const int64_t start = int64_t{i} * x.size + (x.reversed ? x.size - 1 : 0);
    blend_columns(space.data(), columns.first.data(), columns.weights.data(), columns.taps, x.size,
                  x.reversed ? -1 : 1, planes[0] + start, planes[1] + start, planes[2] + start);
  }
}

}  // namespace yoke::kernels
