#include "yoke/kernels/cuda/columns.cuh"
#include "yoke/kernels/cuda/pack.h"

namespace yoke::kernels {
namespace {

struct Sources {
  const uint4* data[3];
  int64_t item[3], head[3], token[3];  // in vectors
};

constexpr int kTokens = 8;  // of a block
constexpr int kInFlight = 4;

// A thread copies the same vector of several tokens.
__global__ void pack_kernel(Sources from, uint4* packed, int64_t rows, int tokens, int heads, int size) {
  const int part_size = heads * size;
  const int at = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  if (at >= 3 * part_size) return;
  const int part = at / part_size, inside = at % part_size;
  const uint4* source = from.data[part] + inside / size * from.head[part] + inside % size;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kTokens;
  for (int64_t row = first; row < min(first + kTokens, rows); row += kInFlight) {
    uint4 held[kInFlight];
#pragma unroll
    for (int u = 0; u < kInFlight; ++u)
      if (row + u < rows)
        held[u] = source[(row + u) / tokens * from.item[part] + (row + u) % tokens * from.token[part]];
#pragma unroll
    for (int u = 0; u < kInFlight; ++u)
      if (row + u < rows) packed[(row + u) * 3 * part_size + at] = held[u];
  }
}

}  // namespace

void pack_heads(const CudaHeads (&from)[3], void* packed, int64_t items, int64_t tokens, int64_t heads,
                int64_t size, int64_t number_bytes, void* stream) {
  const int64_t numbers = 16 / number_bytes;
  Sources sources;
  for (int i = 0; i < 3; ++i) {
    sources.data[i] = static_cast<const uint4*>(from[i].data);
    sources.item[i] = from[i].item / numbers;
    sources.head[i] = from[i].head / numbers;
    sources.token[i] = from[i].token / numbers;
  }
  const int64_t vectors = 3 * heads * size / numbers;
  const auto threads = static_cast<unsigned>(std::min<int64_t>((vectors + 31) / 32 * 32, 512));
  const int64_t rows = items * tokens;
  const dim3 grid(static_cast<unsigned>((rows + kTokens - 1) / kTokens),
                  static_cast<unsigned>((vectors + threads - 1) / threads));
  pack_kernel<<<grid, threads, 0, static_cast<cudaStream_t>(stream)>>>(
      sources, static_cast<uint4*>(packed), rows, static_cast<int>(tokens), static_cast<int>(heads),
      static_cast<int>(size / numbers));
  check_launch("pack_heads");
}

}  // namespace yoke::kernels
