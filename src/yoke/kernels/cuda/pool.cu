#include "yoke/kernels/cuda/columns.cuh"
#include "yoke/kernels/cuda/pool.h"

namespace yoke::kernels {
namespace {

constexpr int kThreads = 256;

// Sizes fit into 32 bits: divisions by them are most of the arithmetic.
struct Frame {
  int vectors, kernel, stride, padding, height, width, out_height, out_width;
  int64_t total;  // vectors to write
};

template <class T>
struct Taps {
  uint8_t tap[kLanes<T>];
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    pool_kernel(Frame frame, bool relu, const uint4* x, uint4* y, Taps<T>* taps) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= frame.total) return;
  const int vector = static_cast<int>(at % frame.vectors);
  const int64_t pixel = at / frame.vectors;
  const int column = static_cast<int>(pixel % frame.out_width);
  const int64_t line = pixel / frame.out_width;
  const int row = static_cast<int>(line % frame.out_height);
  const int64_t item = line / frame.out_height;
  const int top = row * frame.stride - frame.padding, left = column * frame.stride - frame.padding;
  Lanes<T> best;
  Taps<T> where;
#pragma unroll
  for (int i = 0; i < kLanes<T>; ++i) {
    best.value[i] = relu ? 0.0f : -INFINITY;
    where.tap[i] = kNoTap;
  }
  for (int a = 0; a < frame.kernel; ++a) {
    const int from_row = top + a;
    if (from_row < 0 || from_row >= frame.height) continue;
    for (int b = 0; b < frame.kernel; ++b) {
      const int from_column = left + b;
      if (from_column < 0 || from_column >= frame.width) continue;
      const int64_t from =
          ((item * frame.height + from_row) * frame.width + from_column) * frame.vectors + vector;
      const Lanes<T> value = widen<T>(x[from]);
      const auto tap = static_cast<uint8_t>(a * frame.kernel + b);
#pragma unroll
      for (int i = 0; i < kLanes<T>; ++i) {
        // Without ReLU the first tap always wins, even if it is minus infinity.
        const bool wins =
            value.value[i] > best.value[i] || isnan(value.value[i]) || (!relu && where.tap[i] == kNoTap);
        if (!wins) continue;
        best.value[i] = value.value[i];
        where.tap[i] = tap;
      }
    }
  }
  y[at] = narrow<T>(best);
  taps[at] = where;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    pool_backward_kernel(Frame frame, const uint4* grad_y, const Taps<T>* taps, uint4* grad_x) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= frame.total) return;
  const int vector = static_cast<int>(at % frame.vectors);
  const int64_t pixel = at / frame.vectors;
  const int column = static_cast<int>(pixel % frame.width);
  const int64_t line = pixel / frame.width;
  const int row = static_cast<int>(line % frame.height);
  const int64_t item = line / frame.height;
  // The windows that hold this pixel.
  auto first = [&](int place) {
    const int room = place + frame.padding - frame.kernel + 1;
    return room <= 0 ? 0 : (room + frame.stride - 1) / frame.stride;
  };
  const int last_row = min((row + frame.padding) / frame.stride, frame.out_height - 1);
  const int last_column = min((column + frame.padding) / frame.stride, frame.out_width - 1);
  Lanes<T> sum = {};
  for (int r = first(row); r <= last_row; ++r) {
    for (int c = first(column); c <= last_column; ++c) {
      const int tap =
          (row + frame.padding - r * frame.stride) * frame.kernel + column + frame.padding - c * frame.stride;
      const int64_t from = ((item * frame.out_height + r) * frame.out_width + c) * frame.vectors + vector;
      const Taps<T> where = taps[from];
      const Lanes<T> g = widen<T>(grad_y[from]);
#pragma unroll
      for (int i = 0; i < kLanes<T>; ++i)
        if (where.tap[i] == tap) sum.value[i] += g.value[i];
    }
  }
  grad_x[at] = narrow<T>(sum);
}

template <class T>
Frame frame_of(const CudaPool& pool, int64_t pixels) {
  const PoolShape& s = pool.shape;
  auto small = [](int64_t size) { return static_cast<int>(size); };
  Frame frame{small(pool.channels) / kLanes<T>,
              small(s.kernel),
              small(s.stride),
              small(s.padding),
              small(s.height),
              small(s.width),
              small(s.out_height),
              small(s.out_width),
              0};
  frame.total = pool.items * pixels * frame.vectors;
  return frame;
}

unsigned blocks_for(int64_t total) {
  return static_cast<unsigned>((total + kThreads - 1) / kThreads);
}

}  // namespace

void max_pool(const CudaPool& pool, const void* x, void* y, uint8_t* taps) {
  with_number(pool.type, [&](auto number) {
    using T = decltype(number);
    const Frame frame = frame_of<T>(pool, pool.shape.out_height * pool.shape.out_width);
    pool_kernel<T><<<blocks_for(frame.total), kThreads, 0, static_cast<cudaStream_t>(pool.stream)>>>(
        frame, pool.relu, static_cast<const uint4*>(x), static_cast<uint4*>(y),
        reinterpret_cast<Taps<T>*>(taps));
  });
  check_launch("max_pool");
}

void max_pool_backward(const CudaPool& pool, const void* grad_y, const uint8_t* taps, void* grad_x) {
  with_number(pool.type, [&](auto number) {
    using T = decltype(number);
    const Frame frame = frame_of<T>(pool, pool.shape.height * pool.shape.width);
    pool_backward_kernel<T><<<blocks_for(frame.total), kThreads, 0, static_cast<cudaStream_t>(pool.stream)>>>(
        frame, static_cast<const uint4*>(grad_y), reinterpret_cast<const Taps<T>*>(taps),
        static_cast<uint4*>(grad_x));
  });
  check_launch("max_pool_backward");
}

}  // namespace yoke::kernels
