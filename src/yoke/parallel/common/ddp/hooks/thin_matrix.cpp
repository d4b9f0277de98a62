#include "yoke/parallel/common/ddp/hooks/thin_matrix.h"

#include <cmath>

#include "yoke/base/random.h"

namespace yoke::parallel {
namespace {

template <class T>
double dot(const T* a, const T* b, int64_t width) {
  double sums[4] = {};
  int64_t i = 0;
  for (; i + 4 <= width; i += 4)
    for (int64_t lane = 0; lane < 4; ++lane)
      sums[lane] += static_cast<double>(a[i + lane]) * static_cast<double>(b[i + lane]);
  for (; i < width; ++i) sums[0] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

template <class T>
void scale(T* row, int64_t width, double factor) {
  for (int64_t i = 0; i < width; ++i) row[i] = static_cast<T>(static_cast<double>(row[i]) * factor);
}

// row -= (row . direction) direction, for all directions.
template <class T>
void project_out(T* row, const T* directions, int64_t count, int64_t width) {
  for (int64_t k = 0; k < count; ++k) {
    const T* direction = directions + k * width;
    double along = dot(row, direction, width);
    for (int64_t i = 0; i < width; ++i)
      row[i] = static_cast<T>(static_cast<double>(row[i]) - along * static_cast<double>(direction[i]));
  }
}

template <class T>
void orthonormalise_rows(T* rows, int64_t count, int64_t width) {
  // If less of its length is left, it is rounding noise
  constexpr double kDependent = sizeof(T) == 4 ? 1e-5 : 1e-12;
  for (int64_t k = 0; k < count; ++k) {
    T* row = rows + k * width;
    double before = std::sqrt(dot(row, row, width));
    if (before > 0) scale(row, width, 1 / before);
    project_out(row, rows, k, width);
    double left = std::sqrt(dot(row, row, width));
    if (!(left > kDependent)) {
      scale(row, width, 0);
      continue;
    }
    scale(row, width, 1 / left);
    project_out(row, rows, k, width);
    scale(row, width, 1 / std::sqrt(dot(row, row, width)));
  }
}

template <class T>
void direct_rows(T* rows, int64_t count, int64_t width, uint64_t seed) {
  for (int64_t k = 0; k < count; ++k) {
    T* row = rows + k * width;
    double length = std::sqrt(dot(row, row, width));
    if (!(length > 0) || !std::isfinite(length)) {
      Random random(derive_seed(seed, static_cast<uint64_t>(k)));
      for (int64_t i = 0; i < width; ++i) row[i] = static_cast<T>(random.normal());
      length = std::sqrt(dot(row, row, width));
    }
    scale(row, width, 1 / length);
  }
}

template <class T>
bool finite_values(const T* values, int64_t count) {
  T spoilt = 0;  // 0 * x is NaN for non-finite x
  for (int64_t i = 0; i < count; ++i) spoilt += values[i] * 0;
  return spoilt == 0;
}

}  // namespace

void orthonormalise(float* rows, int64_t count, int64_t width) {
  orthonormalise_rows(rows, count, width);
}
void orthonormalise(double* rows, int64_t count, int64_t width) {
  orthonormalise_rows(rows, count, width);
}
void make_directions(float* rows, int64_t count, int64_t width, uint64_t seed) {
  direct_rows(rows, count, width, seed);
}
void make_directions(double* rows, int64_t count, int64_t width, uint64_t seed) {
  direct_rows(rows, count, width, seed);
}
bool all_finite(const float* values, int64_t count) {
  return finite_values(values, count);
}
bool all_finite(const double* values, int64_t count) {
  return finite_values(values, count);
}

}  // namespace yoke::parallel
