#include "yoke/kernels/cuda/cross_entropy.h"

#include <cmath>
#include <type_traits>

#include "yoke/kernels/cuda/columns.cuh"
#include "yoke/kernels/cuda/cross_entropy_rows.h"
#include "yoke/kernels/cuda/max_sum.cuh"

namespace yoke::kernels {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;

// As exact as the type's own rounding needs it.
template <class T>
__device__ inline float exp_of(float x) {
  if constexpr (std::is_same_v<T, float>)
    return expf(x);
  else
    return __expf(x);
}

// A row is read twice, the second time from the cache: two blocks per multiprocessor have 200 KB in flight,
// all of them together less than the cache holds.
template <class T>
__global__ void __launch_bounds__(kThreads, 2) cross_entropy_kernel(CudaCrossEntropy in) {
  T* row = static_cast<T*>(in.logits) + static_cast<int64_t>(blockIdx.x) * in.stride;
  auto* vectors = reinterpret_cast<uint4*>(row);
  constexpr int kL = kLanes<T>;
  const int count = static_cast<int>(in.stride / kL), classes = static_cast<int>(in.classes);
  const int64_t target = in.target[blockIdx.x];
  const bool valid = target >= 0 && target < classes;
  const float target_logit = valid ? to_float(row[target]) : 0.0f;
  const float scale = in.factor == nullptr ? in.scale : in.scale * *in.factor;

  MaxSum mine{-INFINITY, 0.0f};
#pragma unroll 4
  for (int at = static_cast<int>(threadIdx.x); at < count; at += kThreads) {
    Lanes<T> held = widen<T>(vectors[at]);
    float top = -INFINITY;
#pragma unroll
    for (int i = 0; i < kL; ++i) {
      if (at * kL + i >= classes) held.value[i] = -INFINITY;
      top = fmaxf(top, held.value[i]);
    }
    if (top == -INFINITY) continue;
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kL; ++i) sum += exp_of<T>(held.value[i] - top);
    mine = merge(mine, MaxSum{top, sum});
  }
  // Every thread has read the target's logit before anyone overwrites it.
  const MaxSum whole = block_reduce<kWarps>(mine);
  if (threadIdx.x == 0) in.loss[blockIdx.x] = valid ? logf(whole.sum) + whole.max - target_logit : NAN;
  const float inverse = 1.0f / whole.sum;
#pragma unroll 4
  for (int at = static_cast<int>(threadIdx.x); at < count; at += kThreads) {
    Lanes<T> held = widen<T>(vectors[at]);
#pragma unroll
    for (int i = 0; i < kL; ++i) {
      const int column = at * kL + i;
      float gradient = column < classes ? exp_of<T>(held.value[i] - whole.max) * inverse : 0.0f;
      if (valid && column == target) gradient -= 1.0f;
      held.value[i] = gradient * scale;
    }
    vectors[at] = narrow<T>(held);
  }
}

template <class T>
__global__ void scale_kernel(uint4* data, int64_t count, const float* factor) {
  const float by = *factor;
  if (by == 1.0f) return;
  for (int64_t at = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; at < count;
       at += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    Lanes<T> numbers = widen<T>(data[at]);
    for (float& number : numbers.value) number *= by;
    data[at] = narrow<T>(numbers);
  }
}

}  // namespace

void cross_entropy(const CudaCrossEntropy& in) {
  if (in.type != CudaNumber::kFloat && can_keep_rows(in.stride)) return cross_entropy_of_kept_rows(in);
  with_number(in.type, [&](auto number) {
    cross_entropy_kernel<decltype(number)>
        <<<static_cast<unsigned>(in.rows), kThreads, 0, static_cast<cudaStream_t>(in.stream)>>>(in);
  });
  check_launch("cross_entropy");
}

void scale_unless_one(CudaNumber type, void* data, int64_t count, const float* factor, void* stream) {
  constexpr unsigned kBlocks = 1024;
  with_number(type, [&](auto number) {
    using T = decltype(number);
    scale_kernel<T><<<kBlocks, 256, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<uint4*>(data),
                                                                            count / kLanes<T>, factor);
  });
  check_launch("scale_unless_one");
}

}  // namespace yoke::kernels
