// Sixteen bytes of numbers at a time: loaded, computed with as floats, stored. Device code only.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "yoke/kernels/cuda/numbers.h"

namespace yoke::kernels {

__device__ inline float to_float(float x) {
  return x;
}
__device__ inline float to_float(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
__device__ inline float to_float(__half x) {
  return __half2float(x);
}

template <class T>
__device__ T from_float(float x);
template <>
__device__ inline float from_float<float>(float x) {
  return x;
}
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16(x);
}
template <>
__device__ inline __half from_float<__half>(float x) {
  return __float2half(x);
}

template <class T>
constexpr int kLanes = 16 / sizeof(T);

template <class T>
struct Lanes {
  float value[kLanes<T>];
};

template <class T>
__device__ inline Lanes<T> widen(const uint4& bits) {
  const T* numbers = reinterpret_cast<const T*>(&bits);
  Lanes<T> out;
#pragma unroll
  for (int i = 0; i < kLanes<T>; ++i) out.value[i] = to_float(numbers[i]);
  return out;
}

template <class T>
__device__ inline uint4 narrow(const Lanes<T>& lanes) {
  uint4 bits;
  T* numbers = reinterpret_cast<T*>(&bits);
#pragma unroll
  for (int i = 0; i < kLanes<T>; ++i) numbers[i] = from_float<T>(lanes.value[i]);
  return bits;
}

// Calls body(T{}) with the type that `number` names.
template <class Body>
void with_number(CudaNumber number, Body body) {
  switch (number) {
    case CudaNumber::kFloat:
      return body(float{});
    case CudaNumber::kBf16:
      return body(__nv_bfloat16{});
    case CudaNumber::kHalf:
      return body(__half{});
  }
}

}  // namespace yoke::kernels
