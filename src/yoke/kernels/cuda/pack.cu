#include "yoke/kernels/cuda/columns.cuh"
#include "yoke/kernels/cuda/pack.h"

namespace yoke::kernels {
namespace {

struct Sources {
  const uint4* data[3];
  int64_t item[3], head[3], token[3];  // in vectors
};

// A block copies one token: a thread for each vector.
__global__ void pack_kernel(Sources from, uint4* packed, int tokens, int heads, int size) {
  const int64_t row = blockIdx.x, item = row / tokens, token = row % tokens;
  const int part_size = heads * size;
  for (int at = static_cast<int>(threadIdx.x); at < 3 * part_size; at += static_cast<int>(blockDim.x)) {
    const int part = at / part_size, inside = at % part_size, head = inside / size, place = inside % size;
    packed[row * 3 * part_size + at] =
        from.data[part][item * from.item[part] + head * from.head[part] + token * from.token[part] + place];
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
  pack_kernel<<<static_cast<unsigned>(items * tokens), threads, 0, static_cast<cudaStream_t>(stream)>>>(
      sources, static_cast<uint4*>(packed), static_cast<int>(tokens), static_cast<int>(heads),
      static_cast<int>(size / numbers));
  check_launch("pack_heads");
}

}  // namespace yoke::kernels
