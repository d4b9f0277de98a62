// Running maximum and sum of exp(x - maximum) (Milakov and Gimelshein 2018). Device code only.
#pragma once

#include <cmath>

namespace yoke::kernels {

struct MaxSum {
  float max;
  float sum;
};

__device__ inline MaxSum merge(MaxSum a, MaxSum b) {
  if (a.max < b.max) {
    MaxSum swap = a;
    a = b;
    b = swap;
  }
  if (b.max == -INFINITY) return a;
  a.sum += b.sum * __expf(b.max - a.max);
  return a;
}

__device__ inline MaxSum warp_reduce(MaxSum value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2)
    value = merge(value, MaxSum{__shfl_xor_sync(0xffffffff, value.max, offset),
                                __shfl_xor_sync(0xffffffff, value.sum, offset)});
  return value;
}

// Over a block of kWarps warps; every thread gets the result. Call again only behind a barrier.
template <int kWarps>
__device__ inline MaxSum block_reduce(MaxSum value) {
  __shared__ MaxSum of_warp[kWarps];
  value = warp_reduce(value);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  return warp_reduce(threadIdx.x % 32 < kWarps ? of_warp[threadIdx.x % 32] : MaxSum{-INFINITY, 0.0f});
}

}  // namespace yoke::kernels
