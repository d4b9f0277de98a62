// Lossy compression of gradients, on plain memory: signs, 8-bit values, and top-k.
//
// Values are float or double. Signs and 8-bit values come in chunks of kSignChunk and kQuantumChunk with one
// scale each; the last chunk may be shorter. A chunk with a non-finite value has the scale NaN and decodes to
// NaN. Results do not depend on the CPU, except for the last bit without fused multiply-add.
#pragma once

#include <cstdint>

namespace yoke::kernels {

inline constexpr int64_t kSignChunk = 1024;
inline constexpr int64_t kQuantumChunk = 512;

inline constexpr int64_t chunks_of(int64_t count, int64_t chunk) {
  return (count + chunk - 1) / chunk;
}

// One bit per value (1: negative) into (count + 7) / 8 bytes; the scale of a chunk is its mean magnitude.
void pack_signs(const float* x, int64_t count, float* scales, uint8_t* bits);
void pack_signs(const double* x, int64_t count, float* scales, uint8_t* bits);

// out += factor * scale * sign, for every value.
void add_signs(float* out, const uint8_t* bits, const float* scales, int64_t count, double factor);
void add_signs(double* out, const uint8_t* bits, const float* scales, int64_t count, double factor);

// x / scale, rounded to nearest; the scale of a chunk is its largest magnitude / 127. Chunks below 1e-30
// become 0.
void quantise(const float* x, int64_t count, float* scales, int8_t* quanta);
void quantise(const double* x, int64_t count, float* scales, int8_t* quanta);

// out += factor * scale * quantum, for every value.
void add_quanta(float* out, const int8_t* quanta, const float* scales, int64_t count, double factor);
void add_quanta(double* out, const int8_t* quanta, const float* scales, int64_t count, double factor);

// Positions of the `kept` values of largest magnitude, in ascending order. NaN is larger than infinity; on a
// tie the earlier value is kept. Requires 0 < kept <= count < 2^31.
void largest_magnitudes(const float* x, int64_t count, int64_t kept, int32_t* places);
void largest_magnitudes(const double* x, int64_t count, int64_t kept, int32_t* places);

// out [rows, columns] = transpose(left [rank, rows]) * right [rank, columns], summed in rank order.
void low_rank_product(const float* left, const float* right, float* out, int64_t rows, int64_t columns,
                      int64_t rank);
void low_rank_product(const double* left, const double* right, double* out, int64_t rows, int64_t columns,
                      int64_t rank);

}  // namespace yoke::kernels
