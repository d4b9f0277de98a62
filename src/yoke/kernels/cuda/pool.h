// Max pooling of channels-last pixels on CUDA, with the winning tap stored as a byte.
//
// Images [items, height, width, channels] of fp32, bf16 or fp16, contiguous and 16-byte aligned, channels a
// multiple of 8. The backward pass gathers: every value is written once, in a fixed order.
#pragma once

#include <cstdint>

#include "yoke/kernels/cuda/numbers.h"
#include "yoke/kernels/pool.h"

namespace yoke::kernels {

struct CudaPool {
  CudaNumber type = CudaNumber::kFloat;
  int64_t items = 0, channels = 0;
  PoolShape shape;    // kernel * kernel <= 255
  bool relu = false;  // of the input, before the maximum
  void* stream = nullptr;
};

// y [items, out_height, out_width, channels]; `taps` has as many bytes: index of the winner in its window, or
// 255 if ReLU zeroed it. NaN wins.
void max_pool(const CudaPool& pool, const void* x, void* y, uint8_t* taps);
void max_pool_backward(const CudaPool& pool, const void* grad_y, const uint8_t* taps, void* grad_x);

}  // namespace yoke::kernels
