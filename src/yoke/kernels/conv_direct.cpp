#include "yoke/kernels/conv_direct.h"

#include <algorithm>

#include "yoke/kernels/simd.h"

namespace yoke::kernels {
namespace {

int64_t whole_vectors(int64_t count) {
  return (count + kLanes - 1) / kLanes * kLanes;
}

// Vectors may run over the end of a row: the next row of the same plane is written later.
template <int kOutputs, int kVectors>
YOKE_INLINE void store_tile(const Vec* sums, float* y, const PlaneShape& s, int64_t o, int64_t row,
                            int64_t x) {
  int64_t plane = s.out_height() * s.out_width();
  for (int i = 0; i < kOutputs; ++i) {
    for (int v = 0; v < kVectors; ++v) {
      int64_t column = x + v * kLanes;
      int64_t at = row * s.out_width() + column;
      float* to = y + (o + i) * plane + at;
      if (at + kLanes <= plane) {
        store(to, sums[i * kVectors + v]);
      } else {
        store_some(to, sums[i * kVectors + v], s.out_width() - column);
      }
    }
  }
}

// Outputs [o, o + kOutputs) of one output row, kVectors vectors from column x on.
template <int kOutputs, int kVectors>
YOKE_INLINE void convolve_tile(const float* padded, const float* weight, const float* bias, float* y,
                               const PlaneShape& s, int64_t o, int64_t row, int64_t x) {
  int64_t taps = s.kernel_height * s.kernel_width;
  int64_t pitch = s.pitch();
  int64_t per_output = s.channels * taps;
  Vec sums[kOutputs][kVectors];
  for (int i = 0; i < kOutputs; ++i) {
    for (int v = 0; v < kVectors; ++v) sums[i][v] = broadcast(bias == nullptr ? 0.0f : bias[o + i]);
  }
  const float* w = weight + o * per_output;
  for (int64_t c = 0; c < s.channels; ++c) {
    const float* in = padded + (c * s.rows() + row) * pitch + x;
    for (int64_t a = 0; a < s.kernel_height; ++a, in += pitch) {
      for (int64_t b = 0; b < s.kernel_width; ++b, ++w) {
        Vec pixels[kVectors];
        for (int v = 0; v < kVectors; ++v) pixels[v] = load(in + b + v * kLanes);
        for (int i = 0; i < kOutputs; ++i) {
          for (int v = 0; v < kVectors; ++v) sums[i][v] += pixels[v] * w[i * per_output];
        }
      }
    }
  }
  store_tile<kOutputs, kVectors>(&sums[0][0], y, s, o, row, x);
}

template <int kOutputs>
YOKE_INLINE void convolve_outputs(const float* padded, const float* weight, const float* bias, float* y,
                                  const PlaneShape& s, int64_t o) {
  for (int64_t row = 0; row < s.out_height(); ++row) {
    int64_t x = 0;
    for (; x + kLanes < s.out_width(); x += 2 * kLanes) {
      convolve_tile<kOutputs, 2>(padded, weight, bias, y, s, o, row, x);
    }
    if (x < s.out_width()) convolve_tile<kOutputs, 1>(padded, weight, bias, y, s, o, row, x);
  }
}

YOKE_INLINE void convolve_planes_body(const float* padded, const float* weight, const float* bias, float* y,
                                      const PlaneShape& s) {
  int64_t o = 0;
  for (; o + 8 <= s.outputs; o += 8) convolve_outputs<8>(padded, weight, bias, y, s, o);
  for (; o + 6 <= s.outputs; o += 6) convolve_outputs<6>(padded, weight, bias, y, s, o);
  for (; o + 2 <= s.outputs; o += 2) convolve_outputs<2>(padded, weight, bias, y, s, o);
  for (; o < s.outputs; ++o) convolve_outputs<1>(padded, weight, bias, y, s, o);
}

YOKE_INLINE void fill_zero(float* to, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes) store(to + i, Vec{});
}

// Vectors run over the end of a row, into what is written after it; the buffer has room for the last one.
YOKE_INLINE void pad_planes_body(const float* image, float* padded, const PlaneShape& s) {
  int64_t pitch = s.pitch();
  const float* end = image + s.channels * s.height * s.width;
  for (int64_t c = 0; c < s.channels; ++c) {
    fill_zero(padded, s.padding_height * pitch + s.padding_width);
    padded += s.padding_height * pitch;
    for (int64_t row = 0; row < s.height; ++row, image += s.width, padded += pitch) {
      float* to = padded + s.padding_width;
      int64_t i = 0;
      for (; i < s.width && end - image >= i + kLanes; i += kLanes) store(to + i, load(image + i));
      if (i < s.width) store_some(to + i, load_some(image + i, s.width - i), s.width - i);
      fill_zero(to + s.width, pitch - s.width);  // to the next row's first pixel
    }
    fill_zero(padded, s.padding_height * pitch);
    padded += s.padding_height * pitch;
  }
}

// sums[o * per_output] += the products of one tap with kOutputs planes of grad_y.
template <int kOutputs>
YOKE_INLINE void correlate_tap(const float* in, const float* grad_y, float* sums, const PlaneShape& s,
                               int64_t grad_pitch) {
  int64_t pitch = s.pitch();
  int64_t out_height = s.out_height();
  int64_t per_output = s.channels * s.kernel_height * s.kernel_width * kLanes;
  Vec products[kOutputs];
  for (int i = 0; i < kOutputs; ++i) products[i] = load(sums + i * per_output);
  for (int64_t row = 0; row < out_height; ++row, in += pitch, grad_y += grad_pitch) {
    for (int64_t x = 0; x < grad_pitch; x += kLanes) {
      Vec pixels = load(in + x);
      for (int i = 0; i < kOutputs; ++i)
        products[i] += pixels * load(grad_y + i * out_height * grad_pitch + x);
    }
  }
  for (int i = 0; i < kOutputs; ++i) store(sums + i * per_output, products[i]);
}

template <int kOutputs>
YOKE_INLINE void correlate_outputs(const float* padded, const float* grad_y, float* sums, const PlaneShape& s,
                                   int64_t grad_pitch) {
  for (int64_t c = 0; c < s.channels; ++c) {
    const float* plane = padded + c * s.rows() * s.pitch();
    for (int64_t a = 0; a < s.kernel_height; ++a) {
      for (int64_t b = 0; b < s.kernel_width; ++b, sums += kLanes) {
        correlate_tap<kOutputs>(plane + a * s.pitch() + b, grad_y, sums, s, grad_pitch);
      }
    }
  }
}

YOKE_INLINE void correlate_planes_body(const float* padded, const float* grad_y, float* sums,
                                       const PlaneShape& s, int64_t grad_pitch) {
  int64_t per_output = s.weights() / s.outputs * kLanes;
  int64_t plane = s.out_height() * grad_pitch;
  int64_t o = 0;
  for (; o + 8 <= s.outputs; o += 8) {
    correlate_outputs<8>(padded, grad_y + o * plane, sums + o * per_output, s, grad_pitch);
  }
  for (; o + 2 <= s.outputs; o += 2) {
    correlate_outputs<2>(padded, grad_y + o * plane, sums + o * per_output, s, grad_pitch);
  }
  for (; o < s.outputs; ++o) {
    correlate_outputs<1>(padded, grad_y + o * plane, sums + o * per_output, s, grad_pitch);
  }
}
YOKE_KERNEL(correlate_planes,
            (const float* padded, const float* grad_y, float* sums, const PlaneShape& s, int64_t grad_pitch),
            (padded, grad_y, sums, s, grad_pitch))

}  // namespace

YOKE_KERNEL(convolve_planes,
            (const float* padded, const float* weight, const float* bias, float* y, const PlaneShape& shape),
            (padded, weight, bias, y, shape))

int64_t PlaneShape::padded_size() const {
  // Vectors written from the last pixel on: one row and a vector more.
  return channels * rows() * pitch() + pitch() + kLanes;
}

int64_t PlaneShape::pitch() const {
  return whole_vectors(out_width()) + kernel_width - 1;
}

PlaneShape PlaneShape::transposed() const {
  return {.channels = outputs,
          .height = out_height(),
          .width = out_width(),
          .outputs = channels,
          .kernel_height = kernel_height,
          .kernel_width = kernel_width,
          .padding_height = kernel_height - 1 - padding_height,
          .padding_width = kernel_width - 1 - padding_width};
}

YOKE_KERNEL(pad_planes, (const float* image, float* padded, const PlaneShape& shape), (image, padded, shape))

void transpose_weight(const float* weight, float* transposed, const PlaneShape& s) {
  int64_t taps = s.kernel_height * s.kernel_width;
  for (int64_t o = 0; o < s.outputs; ++o) {
    for (int64_t c = 0; c < s.channels; ++c) {
      for (int64_t t = 0; t < taps; ++t) {
        transposed[(c * s.outputs + o) * taps + taps - 1 - t] = weight[(o * s.channels + c) * taps + t];
      }
    }
  }
}

WeightGradient::WeightGradient(const PlaneShape& shape)
    : shape_(shape),
      rows_{
          .channels = shape.outputs, .height = shape.out_height(), .width = shape.out_width(), .outputs = 1},
      grad_y_(static_cast<size_t>(rows_.padded_size())),
      sums_(static_cast<size_t>(shape.weights() * kLanes)) {}

void WeightGradient::add(const float* padded, const float* grad_y) {
  pad_planes(grad_y, grad_y_.data(), rows_);
  correlate_planes(padded, grad_y_.data(), sums_.data(), shape_, rows_.pitch());
}

void WeightGradient::add_to(float* grad_weight) const {
  for (int64_t i = 0; i < shape_.weights(); ++i) grad_weight[i] += sum_of(load(sums_.data() + i * kLanes));
}

namespace reference {

void convolve(const float* image, const float* weight, const float* bias, float* y, const PlaneShape& s) {
  for (int64_t o = 0; o < s.outputs; ++o) {
    for (int64_t i = 0; i < s.out_height(); ++i) {
      for (int64_t j = 0; j < s.out_width(); ++j) {
        double sum = bias == nullptr ? 0 : bias[o];
        for (int64_t c = 0; c < s.channels; ++c) {
          for (int64_t a = 0; a < s.kernel_height; ++a) {
            for (int64_t b = 0; b < s.kernel_width; ++b) {
              int64_t row = i + a - s.padding_height, column = j + b - s.padding_width;
              if (row < 0 || row >= s.height || column < 0 || column >= s.width) continue;
              sum += static_cast<double>(image[(c * s.height + row) * s.width + column]) *
                     weight[((o * s.channels + c) * s.kernel_height + a) * s.kernel_width + b];
            }
          }
        }
        *y++ = static_cast<float>(sum);
      }
    }
  }
}

void weight_gradient(const float* image, const float* grad_y, double* grad_weight, const PlaneShape& s) {
  for (int64_t o = 0; o < s.outputs; ++o) {
    for (int64_t c = 0; c < s.channels; ++c) {
      for (int64_t a = 0; a < s.kernel_height; ++a) {
        for (int64_t b = 0; b < s.kernel_width; ++b, ++grad_weight) {
          for (int64_t i = 0; i < s.out_height(); ++i) {
            for (int64_t j = 0; j < s.out_width(); ++j) {
              int64_t row = i + a - s.padding_height, column = j + b - s.padding_width;
              if (row < 0 || row >= s.height || column < 0 || column >= s.width) continue;
              *grad_weight += static_cast<double>(image[(c * s.height + row) * s.width + column]) *
                              grad_y[(o * s.out_height() + i) * s.out_width() + j];
            }
          }
        }
      }
    }
  }
}

}  // namespace reference
}  // namespace yoke::kernels
