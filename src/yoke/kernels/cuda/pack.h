// Packs the gradients of queries, keys and values for the fused layer that computed them, with their column
// sums, which are its bias gradient. CUDA.
#pragma once

#include <cstdint>

#include "yoke/kernels/cuda/numbers.h"

namespace yoke::kernels {

// One of the three: [items, heads, tokens, size] with these strides in elements, the last dimension
// contiguous.
struct CudaHeads {
  const void* data = nullptr;
  int64_t item = 0, head = 0, token = 0;
};

struct CudaPacking {
  CudaNumber type = CudaNumber::kFloat;  // of everything except the workspace
  int64_t items = 0, tokens = 0, heads = 0, size = 0;
  void* stream = nullptr;
};

// Floats of scratch memory for pack_heads with sums.
int64_t pack_workspace(const CudaPacking& shape);

// packed [items, tokens, 3, heads, size], contiguous; everything is 16-byte aligned, including strides and
// size. sums [3 * heads * size]: column sums of packed, or nullptr (then the workspace may be too). No
// atomics: deterministic. Requires: fewer than 2^31 tokens in total.
void pack_heads(const CudaPacking& shape, const CudaHeads (&from)[3], void* packed, void* sums,
                float* workspace);

}  // namespace yoke::kernels
