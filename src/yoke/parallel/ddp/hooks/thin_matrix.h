// Steps of PowerSGD on thin matrices in host memory, stored row by row: each row is a vector of the basis.
// Plain loops in one thread: ranks on unlike machines and with unlike numbers of threads get the same bits.
#pragma once

#include <cstdint>

namespace yoke::parallel {

// Rows of length 1 at right angles (Gram-Schmidt, twice). A row that depends on those before it becomes 0.
void orthonormalise(float* rows, int64_t count, int64_t width);
void orthonormalise(double* rows, int64_t count, int64_t width);

// Rows of length 1, as directions to start from; a row of zeros, or one that is not finite, is drawn anew
// from `seed`.
void make_directions(float* rows, int64_t count, int64_t width, uint64_t seed);
void make_directions(double* rows, int64_t count, int64_t width, uint64_t seed);

bool all_finite(const float* values, int64_t count);
bool all_finite(const double* values, int64_t count);

}  // namespace yoke::parallel
