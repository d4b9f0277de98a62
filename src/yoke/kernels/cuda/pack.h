// Gradients of a layer's queries, keys and values beside each other, as the layer that made them wants them.
// CUDA.
#pragma once

#include <cstdint>

namespace yoke::kernels {

// One of the three: [items, heads, tokens, size] with these strides in elements, the last dimension
// contiguous.
struct CudaHeads {
  const void* data = nullptr;
  int64_t item = 0, head = 0, token = 0;
};

// packed [items, tokens, 3, heads, size], contiguous, from three arrays of 2- or 4-byte numbers. Everything
// is 16-byte aligned, strides and size included.
void pack_heads(const CudaHeads (&from)[3], void* packed, int64_t items, int64_t tokens, int64_t heads,
                int64_t size, int64_t number_bytes, void* stream);

}  // namespace yoke::kernels
