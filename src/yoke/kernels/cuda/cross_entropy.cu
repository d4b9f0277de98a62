#include "yoke/kernels/cuda/cross_entropy.h"

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cmath>

#include "yoke/kernels/cuda/cross_entropy_rows.h"
#include "yoke/kernels/cuda/max_sum.cuh"

namespace yoke::kernels {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;

// A row is read twice, the second time from the cache: two blocks per multiprocessor have 200 KB in flight,
// all of them together less than the cache holds.
__global__ void __launch_bounds__(kThreads, 2)
    cross_entropy_kernel(__nv_bfloat16* logits, const int64_t* targets, float* losses, int classes,
                         int stride, float scale) {
  __nv_bfloat16* row = logits + static_cast<int64_t>(blockIdx.x) * stride;
  auto* vectors = reinterpret_cast<uint4*>(row);
  const int count = stride / 8;
  const int64_t target = targets[blockIdx.x];
  const bool valid = target >= 0 && target < classes;
  const float target_logit = valid ? __bfloat162float(row[target]) : 0.0f;

  MaxSum mine{-INFINITY, 0.0f};
#pragma unroll 4
  for (int at = static_cast<int>(threadIdx.x); at < count; at += kThreads) {
    const uint4 held = vectors[at];
    const auto* numbers = reinterpret_cast<const __nv_bfloat16*>(&held);
    float values[8];
    float top = -INFINITY;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      values[i] = at * 8 + i < classes ? __bfloat162float(numbers[i]) : -INFINITY;
      top = fmaxf(top, values[i]);
    }
    if (top == -INFINITY) continue;
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; ++i) sum += __expf(values[i] - top);
    mine = merge(mine, MaxSum{top, sum});
  }
  // Every thread has read the target's logit before anyone overwrites it.
  const MaxSum whole = block_reduce<kWarps>(mine);
  if (threadIdx.x == 0) losses[blockIdx.x] = valid ? logf(whole.sum) + whole.max - target_logit : NAN;
  const float inverse = 1.0f / whole.sum;
#pragma unroll 4
  for (int at = static_cast<int>(threadIdx.x); at < count; at += kThreads) {
    uint4 held = vectors[at];
    auto* numbers = reinterpret_cast<__nv_bfloat16*>(&held);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int column = at * 8 + i;
      float gradient = column < classes ? __expf(__bfloat162float(numbers[i]) - whole.max) * inverse : 0.0f;
      if (valid && column == target) gradient -= 1.0f;
      numbers[i] = __float2bfloat16(gradient * scale);
    }
    vectors[at] = held;
  }
}

__global__ void scale_kernel(uint4* data, int64_t count, const float* factor) {
  const float by = *factor;
  if (by == 1.0f) return;
  for (int64_t at = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; at < count;
       at += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    uint4 vector = data[at];
    auto* numbers = reinterpret_cast<__nv_bfloat16*>(&vector);
    for (int i = 0; i < 8; ++i) numbers[i] = __float2bfloat16(__bfloat162float(numbers[i]) * by);
    data[at] = vector;
  }
}

}  // namespace

void cross_entropy_bf16(void* logits, const int64_t* target, float* loss, int64_t rows, int64_t classes,
                        int64_t stride, float scale, void* stream) {
  if (can_keep_rows(stride))
    return cross_entropy_of_kept_rows(logits, target, loss, rows, classes, stride, scale, stream);
  cross_entropy_kernel<<<static_cast<unsigned>(rows), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      static_cast<__nv_bfloat16*>(logits), target, loss, static_cast<int>(classes), static_cast<int>(stride),
      scale);
}

void scale_unless_one_bf16(void* data, int64_t count, const float* factor, void* stream) {
  constexpr unsigned kBlocks = 1024;
  scale_kernel<<<kBlocks, 256, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<uint4*>(data), count / 8,
                                                                       factor);
}

}  // namespace yoke::kernels
