#include "yoke/kernels/cuda/columns.cuh"
#include "yoke/kernels/cuda/pool.h"

namespace yoke::kernels {
namespace {

constexpr int kThreads = 256;

// Sizes fit into 32 bits: divisions by them are most of the arithmetic.
struct Frame {
  int vectors, kernel, stride, padding, height, width, out_height, out_width;
  int64_t total;  // vectors of the input
};

template <class T>
struct Taps {
  uint8_t tap[kLanes<T>];
};

// The largest numbers of a vector's lanes so far, and their taps. The first of equal ones wins; NaN wins.
template <class T>
struct Best {
  float value[kLanes<T>];
  Taps<T> where;

  __device__ Best(bool relu, int first_tap) {
#pragma unroll
    for (int i = 0; i < kLanes<T>; ++i) {
      value[i] = relu ? 0.0f : -INFINITY;
      where.tap[i] = relu ? kNoTap : static_cast<uint8_t>(first_tap);
    }
  }
  __device__ void compare(const uint4& bits, int tap) {
    const Lanes<T> other = widen<T>(bits);
#pragma unroll
    for (int i = 0; i < kLanes<T>; ++i) {
      if (!(other.value[i] > value[i] || isnan(other.value[i]))) continue;
      value[i] = other.value[i];
      where.tap[i] = static_cast<uint8_t>(tap);
    }
  }
  __device__ uint4 numbers() const {
    Lanes<T> lanes;
#pragma unroll
    for (int i = 0; i < kLanes<T>; ++i) lanes.value[i] = value[i];
    return narrow<T>(lanes);
  }
  __device__ Taps<T> taps() const {
    return where;
  }
};

// Two numbers at a time, as they are: the arithmetic would otherwise take longer than the memory.
template <class Pair>
struct BestOfPairs {
  uint32_t value[4], where[4];  // taps in the halves of a word

  __device__ BestOfPairs(bool relu, int first_tap, uint32_t minus_infinity) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      value[i] = relu ? 0u : minus_infinity * 0x00010001u;
      where[i] = (relu ? uint32_t{kNoTap} : static_cast<uint32_t>(first_tap)) * 0x00010001u;
    }
  }
  __device__ void compare(const uint4& bits, int tap) {
    const uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
    const uint32_t taps = static_cast<uint32_t>(tap) * 0x00010001u;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Pair mine = *reinterpret_cast<const Pair*>(&value[i]),
                 other = *reinterpret_cast<const Pair*>(&words[i]);
      const uint32_t wins = __hgt2_mask(other, mine) | __hneu2_mask(other, other);
      value[i] = (value[i] & ~wins) | (words[i] & wins);
      where[i] = (where[i] & ~wins) | (taps & wins);
    }
  }
  __device__ uint4 numbers() const {
    return {value[0], value[1], value[2], value[3]};
  }
  template <class T>
  __device__ Taps<T> packed_taps() const {
    const uint2 bytes = {__byte_perm(where[0], where[1], 0x6420), __byte_perm(where[2], where[3], 0x6420)};
    return *reinterpret_cast<const Taps<T>*>(&bytes);
  }
};

template <>
struct Best<__nv_bfloat16> : BestOfPairs<__nv_bfloat162> {
  __device__ Best(bool relu, int first_tap) : BestOfPairs(relu, first_tap, 0xff80u) {}
  __device__ Taps<__nv_bfloat16> taps() const { return packed_taps<__nv_bfloat16>(); }
};

template <>
struct Best<__half> : BestOfPairs<__half2> {
  __device__ Best(bool relu, int first_tap) : BestOfPairs(relu, first_tap, 0xfc00u) {}
  __device__ Taps<__half> taps() const { return packed_taps<__half>(); }
};

// A block takes a part of one line (row of an image, or of blocks of it): the divisions that find the line
// are the same for all of its threads.
struct Spot {
  int vector, column, row;
  int64_t item;
  bool inside;
};

__device__ inline Spot spot_of(int vectors, int columns, int rows) {
  const int at = static_cast<int>(blockIdx.y * kThreads + threadIdx.x);
  return {at % vectors, at / vectors, static_cast<int>(blockIdx.x % static_cast<unsigned>(rows)),
          blockIdx.x / static_cast<unsigned>(rows), at < vectors * columns};
}

template <class T, int kKernel>
__global__ void __launch_bounds__(kThreads)
    pool_kernel(Frame frame, bool relu, const uint4* x, uint4* y, Taps<T>* taps) {
  const Spot spot = spot_of(frame.vectors, frame.out_width, frame.out_height);
  if (!spot.inside) return;
  const int kernel = kKernel > 0 ? kKernel : frame.kernel;
  const int top = spot.row * frame.stride - frame.padding, left = spot.column * frame.stride - frame.padding;
  Best<T> best(relu, max(-top, 0) * kernel + max(-left, 0));
  const uint4* image = x + spot.item * frame.height * frame.width * frame.vectors + spot.vector;
  auto holds = [&](int a, int b) {
    return top + a >= 0 && top + a < frame.height && left + b >= 0 && left + b < frame.width;
  };
  auto number_at = [&](int a, int b) { return image[((top + a) * frame.width + left + b) * frame.vectors]; };
  if constexpr (kKernel > 0) {
    uint4 window[kKernel * kKernel];
#pragma unroll
    for (int tap = 0; tap < kKernel * kKernel; ++tap)
      if (holds(tap / kKernel, tap % kKernel)) window[tap] = number_at(tap / kKernel, tap % kKernel);
#pragma unroll
    for (int tap = 0; tap < kKernel * kKernel; ++tap)
      if (holds(tap / kKernel, tap % kKernel)) best.compare(window[tap], tap);
  } else {
    for (int tap = 0; tap < kernel * kernel; ++tap)
      if (holds(tap / kernel, tap % kernel)) best.compare(number_at(tap / kernel, tap % kernel), tap);
  }
  const int64_t at =
      (static_cast<int64_t>(blockIdx.x) * frame.out_width + spot.column) * frame.vectors + spot.vector;
  y[at] = best.numbers();
  taps[at] = best.taps();
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

// A thread takes a block of kStride x kStride pixels, whose windows it reads once for all of them.
template <class T, int kKernel, int kStride>
__global__ void __launch_bounds__(kThreads)
    pool_blocks_backward_kernel(Frame frame, int block_rows, int block_columns, const uint4* grad_y,
                                const Taps<T>* taps, uint4* grad_x) {
  constexpr int kWindows = (kKernel - 1) / kStride + 1;  // that hold a pixel, along one side
  const Spot spot = spot_of(frame.vectors, block_columns, block_rows);
  if (!spot.inside) return;
  uint4 numbers[kWindows][kWindows];
  Taps<T> where[kWindows][kWindows];
#pragma unroll
  for (int a = 0; a < kWindows; ++a) {
#pragma unroll
    for (int b = 0; b < kWindows; ++b) {
      const int row = spot.row - kWindows + 1 + a, column = spot.column - kWindows + 1 + b;
      if (row < 0 || row >= frame.out_height || column < 0 || column >= frame.out_width) {
        numbers[a][b] = {};
        where[a][b] = {};
        continue;
      }
      const int64_t from =
          ((spot.item * frame.out_height + row) * frame.out_width + column) * frame.vectors + spot.vector;
      numbers[a][b] = grad_y[from];
      where[a][b] = taps[from];
    }
  }
#pragma unroll
  for (int o = 0; o < kStride * kStride; ++o) {
    const int down = o / kStride, along = o % kStride;
    const int row = spot.row * kStride + down - frame.padding;
    const int column = spot.column * kStride + along - frame.padding;
    if (row < 0 || row >= frame.height || column < 0 || column >= frame.width) continue;
    Lanes<T> sum = {};
#pragma unroll
    for (int a = 0; a < kWindows; ++a) {
#pragma unroll
      for (int b = 0; b < kWindows; ++b) {
        const int tap_row = down + kStride * (kWindows - 1 - a),
                  tap_column = along + kStride * (kWindows - 1 - b);
        if (tap_row >= kKernel || tap_column >= kKernel) continue;
        const Lanes<T> g = widen<T>(numbers[a][b]);
#pragma unroll
        for (int i = 0; i < kLanes<T>; ++i)
          if (where[a][b].tap[i] == tap_row * kKernel + tap_column) sum.value[i] += g.value[i];
      }
    }
    grad_x[((spot.item * frame.height + row) * frame.width + column) * frame.vectors + spot.vector] =
        narrow<T>(sum);
  }
}

template <class T>
Frame frame_of(const CudaPool& pool) {
  const PoolShape& s = pool.shape;
  auto small = [](int64_t size) { return static_cast<int>(size); };
  return {small(pool.channels) / kLanes<T>,
          small(s.kernel),
          small(s.stride),
          small(s.padding),
          small(s.height),
          small(s.width),
          small(s.out_height),
          small(s.out_width),
          pool.items * s.height * s.width * (small(pool.channels) / kLanes<T>)};
}

unsigned blocks_for(int64_t total) {
  return static_cast<unsigned>((total + kThreads - 1) / kThreads);
}

// Lines, and parts of a line.
dim3 grid_of(int64_t lines, int64_t vectors_of_line) {
  return dim3(static_cast<unsigned>(lines), blocks_for(vectors_of_line));
}

template <class T, int kKernel>
void pool_of(const CudaPool& pool, const void* x, void* y, uint8_t* taps) {
  const Frame frame = frame_of<T>(pool);
  const dim3 grid =
      grid_of(pool.items * frame.out_height, static_cast<int64_t>(frame.out_width) * frame.vectors);
  pool_kernel<T, kKernel><<<grid, kThreads, 0, static_cast<cudaStream_t>(pool.stream)>>>(
      frame, pool.relu, static_cast<const uint4*>(x), static_cast<uint4*>(y),
      reinterpret_cast<Taps<T>*>(taps));
}

template <class T, int kKernel, int kStride>
void pool_backward_of(const CudaPool& pool, const void* grad_y, const uint8_t* taps, void* grad_x) {
  const Frame frame = frame_of<T>(pool);
  auto blocks = [&](int size) { return (size + frame.padding + kStride - 1) / kStride; };
  const int rows = blocks(frame.height), columns = blocks(frame.width);
  const dim3 grid = grid_of(pool.items * rows, static_cast<int64_t>(columns) * frame.vectors);
  pool_blocks_backward_kernel<T, kKernel, kStride>
      <<<grid, kThreads, 0, static_cast<cudaStream_t>(pool.stream)>>>(
          frame, rows, columns, static_cast<const uint4*>(grad_y), reinterpret_cast<const Taps<T>*>(taps),
          static_cast<uint4*>(grad_x));
}

template <class T>
void any_pool_backward(const CudaPool& pool, const void* grad_y, const uint8_t* taps, void* grad_x) {
  const Frame frame = frame_of<T>(pool);
  pool_backward_kernel<T><<<blocks_for(frame.total), kThreads, 0, static_cast<cudaStream_t>(pool.stream)>>>(
      frame, static_cast<const uint4*>(grad_y), reinterpret_cast<const Taps<T>*>(taps),
      static_cast<uint4*>(grad_x));
}

}  // namespace

void max_pool(const CudaPool& pool, const void* x, void* y, uint8_t* taps) {
  if (pool.items == 0) return;
  with_number(pool.type, [&](auto number) {
    using T = decltype(number);
    if (pool.shape.kernel == 3) return pool_of<T, 3>(pool, x, y, taps);
    if (pool.shape.kernel == 2) return pool_of<T, 2>(pool, x, y, taps);
    pool_of<T, 0>(pool, x, y, taps);
  });
  check_launch("max_pool");
}

void max_pool_backward(const CudaPool& pool, const void* grad_y, const uint8_t* taps, void* grad_x) {
  if (pool.items == 0) return;
  with_number(pool.type, [&](auto number) {
    using T = decltype(number);
    if (pool.shape.stride == 2 && pool.shape.kernel == 3)
      return pool_backward_of<T, 3, 2>(pool, grad_y, taps, grad_x);
    if (pool.shape.stride == 2 && pool.shape.kernel == 2)
      return pool_backward_of<T, 2, 2>(pool, grad_y, taps, grad_x);
    any_pool_backward<T>(pool, grad_y, taps, grad_x);
  });
  check_launch("max_pool_backward");
}

}  // namespace yoke::kernels
