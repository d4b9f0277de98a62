// A block keeps a row in shared memory, in pieces: reads a piece as soon as it arrives, turns it into the
// gradient once the row's sum is known, and writes it back while the next row arrives in the free pieces.
// Each logit crosses the memory bus twice, and copies never wait for the arithmetic of more than one piece.
#include "yoke/kernels/cuda/cross_entropy_rows.h"

#include "yoke/kernels/cuda/bulk_copy.cuh"
#include "yoke/kernels/cuda/columns.cuh"
#include "yoke/kernels/cuda/max_sum.cuh"

namespace yoke::kernels {
namespace {

constexpr int kThreads = 512;
constexpr int kPiece = 1024;  // vectors of 8 numbers
constexpr int kMostPieces = 16;

#if __CUDA_ARCH__ >= 900

constexpr float kLog2e = 1.4426950408889634f;

__device__ inline float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Two numbers in a word.
template <class T>
struct Pair;

template <>
struct Pair<__nv_bfloat16> {
  static __device__ float2 widen(uint32_t bits) {
    return {__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u)};
  }
  static __device__ __nv_bfloat162 narrow(float low, float high) { return __floats2bfloat162_rn(low, high); }
  static __device__ uint32_t bits_of(float value) { return __bfloat16_as_ushort(__float2bfloat16(value)); }
};

template <>
struct Pair<__half> {
  static __device__ float2 widen(uint32_t bits) { return __half22float2(*reinterpret_cast<__half2*>(&bits)); }
  static __device__ __half2 narrow(float low, float high) { return __floats2half2_rn(low, high); }
  static __device__ uint32_t bits_of(float value) { return __half_as_ushort(__float2half(value)); }
};

template <class T>
__device__ inline void widen8(const uint4& held, float (&values)[8]) {
  const uint32_t words[4] = {held.x, held.y, held.z, held.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = Pair<T>::widen(words[i]);
    values[2 * i] = pair.x;
    values[2 * i + 1] = pair.y;
  }
}

__device__ inline void hide_behind(int first, int classes, float (&values)[8]) {
  if (first + 8 <= classes) return;
#pragma unroll
  for (int i = 0; i < 8; ++i)
    if (first + i >= classes) values[i] = -INFINITY;
}

template <class T>
__device__ inline MaxSum add_vector(MaxSum mine, const uint4& held, int first, int classes) {
  float values[8];
  widen8<T>(held, values);
  hide_behind(first, classes, values);
  float top = values[0];
#pragma unroll
  for (int i = 1; i < 8; ++i) top = fmaxf(top, values[i]);
  if (top > mine.max) {
    mine.sum *= exp2_of((mine.max - top) * kLog2e);
    mine.max = top;
  }
  const float shift = mine.max == -INFINITY ? 0.0f : mine.max * kLog2e;
#pragma unroll
  for (int i = 0; i < 8; ++i) mine.sum += exp2_of(fmaf(values[i], kLog2e, -shift));
  return mine;
}

template <class T>
__device__ inline uint4 gradient_of(const uint4& held, int first, int classes, float shift, float factor) {
  float values[8];
  widen8<T>(held, values);
  hide_behind(first, classes, values);
  decltype(Pair<T>::narrow(0, 0)) pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    pairs[i] = Pair<T>::narrow(exp2_of(fmaf(values[2 * i], kLog2e, -shift)) * factor,
                               exp2_of(fmaf(values[2 * i + 1], kLog2e, -shift)) * factor);
  return *reinterpret_cast<uint4*>(pairs);
}

// `held` with another number at `index`, without an index into registers.
template <class T>
__device__ inline uint4 with_number_at(const uint4& held, int index, float value) {
  const uint32_t bits = Pair<T>::bits_of(value);
  auto word = [&](uint32_t now, int i) {
    if (index / 2 != i) return now;
    return index % 2 == 0 ? (now & 0xffff0000u) | bits : (now & 0xffffu) | bits << 16;
  };
  return {word(held.x, 0), word(held.y, 1), word(held.z, 2), word(held.w, 3)};
}

#endif

template <class T>
__global__ void __launch_bounds__(kThreads, 2) kept_rows_kernel(CudaCrossEntropy in) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) uint4 row[];
  __shared__ uint64_t arrived[kMostPieces];
  const int thread = static_cast<int>(threadIdx.x);
  const int vectors_of_row = static_cast<int>(in.stride / 8), classes = static_cast<int>(in.classes);
  const int pieces = (vectors_of_row + kPiece - 1) / kPiece;
  const auto* numbers = reinterpret_cast<const T*>(row);
  auto* vectors = reinterpret_cast<uint4*>(in.logits);
  const float scale = in.factor == nullptr ? in.scale : in.scale * *in.factor;
  auto end_of = [&](int piece) { return min(vectors_of_row, (piece + 1) * kPiece); };
  auto bytes_of = [&](int piece) { return static_cast<uint32_t>(end_of(piece) - piece * kPiece) * 16; };
  auto load = [&](int64_t at, int piece) {
    bulk_load(row + piece * kPiece, vectors + at * vectors_of_row + piece * kPiece, bytes_of(piece),
              &arrived[piece]);
  };
  if (thread == 0) {
    for (int piece = 0; piece < pieces; ++piece) barrier_init(&arrived[piece]);
    make_barriers_visible();
    for (int piece = 0; piece < pieces; ++piece) load(blockIdx.x, piece);
  }
  __syncthreads();
  uint32_t phase = 0;
  for (int64_t at = blockIdx.x; at < in.rows; at += gridDim.x, phase ^= 1) {
    const int64_t target = in.target[at];
    const bool valid = target >= 0 && target < classes;
    MaxSum mine{-INFINITY, 0.0f};
    for (int piece = 0; piece < pieces; ++piece) {
      barrier_wait(&arrived[piece], phase);
      for (int v = piece * kPiece + thread; v < end_of(piece); v += kThreads)
        mine = add_vector<T>(mine, row[v], v * 8, classes);
    }
    const float target_logit = valid ? to_float(numbers[target]) : 0.0f;
    // Every thread has read the target's logit before anyone overwrites it.
    const MaxSum whole = block_reduce<kThreads / 32>(mine);
    if (thread == 0) in.loss[at] = valid ? logf(whole.sum) + whole.max - target_logit : NAN;
    const float shift = whole.max * kLog2e, factor = scale / whole.sum;
    const float of_target = (__expf(target_logit - whole.max) / whole.sum - 1.0f) * scale;
    const int64_t next = at + gridDim.x;
    for (int piece = 0; piece < pieces; ++piece) {
      for (int v = piece * kPiece + thread; v < end_of(piece); v += kThreads) {
        uint4 gradient = gradient_of<T>(row[v], v * 8, classes, shift, factor);
        if (valid && v == target / 8)
          gradient = with_number_at<T>(gradient, static_cast<int>(target % 8), of_target);
        row[v] = gradient;
      }
      shared_writes_before_bulk();
      __syncthreads();
      if (thread != 0) continue;
      bulk_store(vectors + at * vectors_of_row + piece * kPiece, row + piece * kPiece, bytes_of(piece));
      if (piece == 0 || next >= in.rows) continue;
      bulk_stores_read<1>();
      load(next, piece - 1);
    }
    if (thread == 0 && next < in.rows) {
      bulk_stores_read<0>();
      load(next, pieces - 1);
    }
  }
  // Shared memory must outlive the copies from it.
  if (thread == 0) bulk_stores_read<0>();
#endif
}

int bytes_of_row(int64_t stride) {
  return static_cast<int>(stride) * 2;
}

int attribute(cudaDeviceAttr which) {
  int device = 0, value = 0;
  if (cudaGetDevice(&device) != cudaSuccess || cudaDeviceGetAttribute(&value, which, device) != cudaSuccess)
    return 0;
  return value;
}

}  // namespace

bool can_keep_rows(int64_t stride) {
  constexpr int kReserved = 2048;  // barriers, partial sums and the driver's own
  return stride % 8 == 0 && stride >= 8 * kPiece && stride <= int64_t{8} * kPiece * kMostPieces &&
         attribute(cudaDevAttrComputeCapabilityMajor) >= 9 &&
         bytes_of_row(stride) + kReserved <= attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
}

void cross_entropy_of_kept_rows(const CudaCrossEntropy& in) {
  if (in.rows == 0) return;
  const int bytes = bytes_of_row(in.stride);
  auto kernel = in.type == CudaNumber::kHalf ? kept_rows_kernel<__half> : kept_rows_kernel<__nv_bfloat16>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  int blocks = 1;
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, kThreads, bytes);
  const int64_t most = static_cast<int64_t>(std::max(blocks, 1)) * attribute(cudaDevAttrMultiProcessorCount);
  kernel<<<static_cast<unsigned>(std::min(in.rows, most)), kThreads, bytes,
           static_cast<cudaStream_t>(in.stream)>>>(in);
  check_launch("cross_entropy");
}

}  // namespace yoke::kernels
