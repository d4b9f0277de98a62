// Steps of PowerSGD on thin matrices in host memory, stored by row: each row is a basis vector. Plain
// single-threaded loops: ranks on different machines and with different numbers of threads get the same bits.
#pragma once

#include <cstdint>

namespace yoke::parallel {

// Orthonormal rows (Gram-Schmidt, twice). A linearly dependent row becomes 0.
void orthonormalise(float* rows, int64_t count, int64_t width);
void orthonormalise(double* rows, int64_t count, int64_t width);

// Rows of length 1 as starting directions; a zero or non-finite row is drawn from `seed`.
void make_directions(float* rows, int64_t count, int64_t width, uint64_t seed);
void make_directions(double* rows, int64_t count, int64_t width, uint64_t seed);

bool all_finite(const float* values, int64_t count);
bool all_finite(const double* values, int64_t count);

}  // namespace yoke::parallel
