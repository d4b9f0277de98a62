#include "yoke/kernels/cuda/pack.h"

#include "yoke/kernels/cuda/columns.cuh"

namespace yoke::kernels {
namespace {

struct Sources {
  const uint4* data[3];
  int64_t item[3], head[3], token[3];  // in vectors
};

constexpr int kMostThreads = 512;
constexpr int kMostBlocks = 264;  // all run at once
constexpr int kInFlight = 4;

struct Grid {
  int rows_of_block, down, along, threads;
};

Grid grid_of(const CudaPacking& shape) {
  const int lanes = shape.type == CudaNumber::kFloat ? kLanes<float> : kLanes<__half>;
  const auto vectors = static_cast<int>(3 * shape.heads * shape.size / lanes);
  const auto rows = static_cast<int>(shape.items * shape.tokens);
  Grid grid;
  grid.along = (vectors + kMostThreads - 1) / kMostThreads;
  grid.threads = ((vectors + grid.along - 1) / grid.along + 31) / 32 * 32;
  const int most = std::max(1, kMostBlocks / grid.along);
  grid.rows_of_block = std::max((rows + most - 1) / most, 2 * kInFlight);
  grid.down = (rows + grid.rows_of_block - 1) / grid.rows_of_block;
  return grid;
}

// A thread copies the same vector of consecutive tokens and keeps its sum.
template <class T, bool kSum>
__global__ void __launch_bounds__(kMostThreads)
    pack_kernel(Sources from, uint4* packed, int rows, int tokens, int heads, int size, int rows_of_block,
                float* partial) {
  const int part_size = heads * size, width = 3 * part_size;
  const int at = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  if (at >= width) return;
  const int part = at / part_size, inside = at % part_size;
  const uint4* source = from.data[part] + inside / size * from.head[part] + inside % size;
  const int64_t item_step = from.item[part], token_step = from.token[part];
  const int first = static_cast<int>(blockIdx.x) * rows_of_block;
  const int end = min(first + rows_of_block, rows);
  int item = first / tokens, token = first % tokens;
  Lanes<T> sum = {};
  for (int row = first; row < end; row += kInFlight) {
    uint4 held[kInFlight];
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      if (row + u < end) held[u] = source[item * item_step + token * token_step];
      if (++token == tokens) {
        token = 0;
        ++item;
      }
    }
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      if (row + u >= end) break;
      packed[static_cast<int64_t>(row + u) * width + at] = held[u];
      if (!kSum) continue;
      const Lanes<T> values = widen<T>(held[u]);
#pragma unroll
      for (int i = 0; i < kLanes<T>; ++i) sum.value[i] += values.value[i];
    }
  }
  if (!kSum) return;
  float* to = partial + (static_cast<int64_t>(blockIdx.x) * width + at) * kLanes<T>;
#pragma unroll
  for (int i = 0; i < kLanes<T>; ++i) to[i] = sum.value[i];
}

template <class T>
__global__ void pack_finish_kernel(const float* partial, int blocks, int64_t columns, T* sums) {
  const int64_t column = blockIdx.x * 32 + threadIdx.x;
  const double sum = sum_partials(partial, blocks, columns, column);
  if (threadIdx.y == 0 && column < columns) sums[column] = from_float<T>(static_cast<float>(sum));
}

Sources sources_of(const CudaHeads (&from)[3], int lanes) {
  Sources sources;
  for (int i = 0; i < 3; ++i) {
    sources.data[i] = static_cast<const uint4*>(from[i].data);
    sources.item[i] = from[i].item / lanes;
    sources.head[i] = from[i].head / lanes;
    sources.token[i] = from[i].token / lanes;
  }
  return sources;
}

}  // namespace

int64_t pack_workspace(const CudaPacking& shape) {
  return static_cast<int64_t>(grid_of(shape).down) * 3 * shape.heads * shape.size;
}

void pack_heads(const CudaPacking& shape, const CudaHeads (&from)[3], void* packed, void* sums,
                float* workspace) {
  const Grid grid = grid_of(shape);
  auto* stream = static_cast<cudaStream_t>(shape.stream);
  const dim3 blocks(static_cast<unsigned>(grid.down), static_cast<unsigned>(grid.along));
  with_number(shape.type, [&](auto number) {
    using T = decltype(number);
    auto* kernel = sums != nullptr ? pack_kernel<T, true> : pack_kernel<T, false>;
    kernel<<<blocks, grid.threads, 0, stream>>>(sources_of(from, kLanes<T>), static_cast<uint4*>(packed),
                                                static_cast<int>(shape.items * shape.tokens),
                                                static_cast<int>(shape.tokens), static_cast<int>(shape.heads),
                                                static_cast<int>(shape.size / kLanes<T>), grid.rows_of_block,
                                                workspace);
    if (sums == nullptr) return;
    const int64_t columns = 3 * shape.heads * shape.size;
    pack_finish_kernel<T><<<static_cast<unsigned>((columns + 31) / 32), dim3(32, 32), 0, stream>>>(
        workspace, grid.down, columns, static_cast<T*>(sums));
  });
  check_launch("pack_heads");
}

}  // namespace yoke::kernels
