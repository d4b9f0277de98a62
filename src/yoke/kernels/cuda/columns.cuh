// How a matrix [rows, columns] is swept when every column has numbers of its own (a channel's mean, a bias).
//
// A thread keeps one vector of columns and walks down the rows, so that the column's numbers stay in
// registers; the threads of a block lie side by side along a row, then row by row, so that they read
// consecutive memory. Blocks interleave: together they pass over the matrix from its first row to its last
// (or back), which leaves the end that was read last in the cache for the next pass.
#pragma once

#include <algorithm>
#include <cstdint>

#include "yoke/kernels/cuda/launch_error.h"
#include "yoke/kernels/cuda/vectors.cuh"

namespace yoke::kernels {

constexpr int kSweepThreads = 256;

struct Sweep {
  int64_t rows;
  int vectors;      // of a row
  int wide;         // vectors of a row that one block takes
  int high;         // rows that one block takes at once
  dim3 grid;        // x: along the row, y: down the rows
  int threads() const { return wide * high; }
};

// `most_blocks`: down the rows; each costs a partial sum a column where sums are taken.
inline Sweep make_sweep(int64_t rows, int64_t columns, int lanes, int most_blocks, int rows_in_flight) {
  Sweep sweep;
  sweep.rows = rows;
  sweep.vectors = static_cast<int>(columns / lanes);
  const int along = (sweep.vectors + kSweepThreads - 1) / kSweepThreads;
  // Shares of equal width, in whole warps: a narrow last one would leave half of its block idle.
  sweep.wide = along == 1 ? sweep.vectors : ((sweep.vectors + along - 1) / along + 31) / 32 * 32;
  sweep.high = kSweepThreads / sweep.wide;
  const int64_t steps = (rows + sweep.high - 1) / sweep.high;
  const int64_t wanted = (steps + rows_in_flight - 1) / rows_in_flight;
  const int64_t down = std::clamp<int64_t>(wanted, 1, std::max(1, most_blocks / along));
  sweep.grid = dim3(static_cast<unsigned>(along), static_cast<unsigned>(down));
  return sweep;
}

struct Place {
  int vector;     // of the row; `inside` is false behind its end
  bool inside;
  int64_t first;  // row
  int64_t step;   // rows
};

__device__ inline Place place_of(const Sweep& sweep) {
  Place place;
  const int x = static_cast<int>(threadIdx.x) % sweep.wide, y = static_cast<int>(threadIdx.x) / sweep.wide;
  place.vector = static_cast<int>(blockIdx.x) * sweep.wide + x;
  place.inside = place.vector < sweep.vectors;
  place.first = static_cast<int64_t>(blockIdx.y) * sweep.high + y;
  place.step = static_cast<int64_t>(gridDim.y) * sweep.high;
  return place;
}

// Adds up `sums` of the threads that have the same columns and writes partial[blockIdx.y][column] (of
// `pitch` columns). All threads of the block call it; the order of the additions is fixed.
template <int kCount>
__device__ inline void write_partial(const Sweep& sweep, const float (&sums)[kCount], float* partial,
                                     int64_t pitch, float* shared) {
  const int width = sweep.wide * kCount;
  __syncthreads();
  const int x = static_cast<int>(threadIdx.x) % sweep.wide, y = static_cast<int>(threadIdx.x) / sweep.wide;
#pragma unroll
  for (int i = 0; i < kCount; ++i) shared[y * width + x * kCount + i] = sums[i];
  __syncthreads();
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * width;
  for (int column = static_cast<int>(threadIdx.x); column < width && begin + column < pitch;
       column += static_cast<int>(blockDim.x)) {
    float sum = 0;
    for (int row = 0; row < sweep.high; ++row) sum += shared[row * width + column];
    partial[blockIdx.y * pitch + begin + column] = sum;
  }
}

// The sum of `blocks` partials of one column, by the 32 threads of a block's y. Call with blockDim (32, 32):
// x is the column. Valid in the threads with threadIdx.y == 0.
__device__ inline double sum_partials(const float* partial, int blocks, int64_t pitch, int64_t column) {
  __shared__ double rows[32][33];
  double sum = 0;
  if (column < pitch)
#pragma unroll 8
    for (int row = static_cast<int>(threadIdx.y); row < blocks; row += 32) sum += partial[row * pitch + column];
  __syncthreads();
  rows[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0) return 0;
  sum = 0;
  for (int row = 0; row < 32; ++row) sum += rows[row][threadIdx.x];
  return sum;
}

inline void check_launch(const char* what) {
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) throw_launch_error(what, cudaGetErrorString(error));
}

}  // namespace yoke::kernels
