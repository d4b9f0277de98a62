#include "yoke/kernels/cuda/layer_norm.h"

#include <cuda_pipeline.h>

#include "yoke/kernels/cuda/columns.cuh"

namespace yoke::kernels {
namespace {

constexpr int kMultiprocessors = 132;  // of an H100 or H200
constexpr int kWarps = 4;              // of a block
constexpr int kThreads = 32 * kWarps;
constexpr int kMostBlocks = 4 * kMultiprocessors;
// Vectors per lane up to which the next row is prefetched; wider rows leave no registers for it.
constexpr int kAhead = 4;
// From here on the backward pass gives a row to a block: the registers of a warp do not hold it any more.
constexpr int kWideVectors = 97;
constexpr int kWideThreads = 640;  // per multiprocessor: more only make their rows wait for each other
constexpr int kWideRows = 3;       // of a block in flight
constexpr int kWidestThreads = kWidestNorm / kLanes<float>;
constexpr int kSums = 3;  // per column: gradients of weight and bias, and the sum of grad_x

__device__ float warp_sum(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffff, value, offset);
  return value;
}

// The row of a warp, lane by lane: vector v of lane l is vector v * 32 + l of the row.
template <class T, int kVectors>
struct Row {
  Lanes<T> part[kVectors];

  __device__ void load(const uint4* from, int vectors, int lane) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v)
      part[v] = v * 32 + lane < vectors ? widen<T>(from[v * 32 + lane]) : Lanes<T>{};
  }
  __device__ void store(uint4* to, int vectors, int lane) const {
#pragma unroll
    for (int v = 0; v < kVectors; ++v)
      if (v * 32 + lane < vectors) to[v * 32 + lane] = narrow<T>(part[v]);
  }
};

// The same in the storage type: half the registers.
template <class T, int kVectors>
struct RawRow {
  uint4 bits[kVectors];

  __device__ void load(const uint4* from, int vectors, int lane) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v)
      bits[v] = v * 32 + lane < vectors ? from[v * 32 + lane] : uint4{0, 0, 0, 0};
  }
};

// y of one row, whose values are in `value`; weight and bias in the storage type.
template <class T, int kVectors>
__device__ void normalise_row(const CudaLayerNorm& in, Row<T, kVectors>& value,
                              const RawRow<T, kVectors>& weight, const RawRow<T, kVectors>& bias, int64_t row,
                              uint4* y, float* means, float* inverses) {
  constexpr int kL = kLanes<T>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int vectors = static_cast<int>(in.width) / kL;
  float total = 0;
#pragma unroll
  for (int v = 0; v < kVectors; ++v)
#pragma unroll
    for (int i = 0; i < kL; ++i) total += value.part[v].value[i];
  const float mean = warp_sum(total) / static_cast<float>(in.width);
  float square = 0;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (v * 32 + lane >= vectors) continue;
#pragma unroll
    for (int i = 0; i < kL; ++i) {
      const float d = value.part[v].value[i] - mean;
      square = fmaf(d, d, square);
    }
  }
  const float inverse = rsqrtf(warp_sum(square) / static_cast<float>(in.width) + in.eps);
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const Lanes<T> w = widen<T>(weight.bits[v]), b = widen<T>(bias.bits[v]);
#pragma unroll
    for (int i = 0; i < kL; ++i)
      value.part[v].value[i] = fmaf((value.part[v].value[i] - mean) * inverse, w.value[i], b.value[i]);
  }
  value.store(y + row * vectors, vectors, lane);
  if (lane != 0) return;
  means[row] = mean;
  inverses[row] = inverse;
}

// A warp takes rows in turn and reads the next one while it computes.
template <class T, int kVectors>
__global__ void __launch_bounds__(kThreads) norm_kernel(CudaLayerNorm in, const uint4* x, const uint4* added,
                                                        uint4* sum, uint4* y, float* means, float* inverses) {
  constexpr int kL = kLanes<T>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int vectors = static_cast<int>(in.width) / kL;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kWarps;
  RawRow<T, kVectors> weight, bias, next, next_added;
  auto load = [&](int64_t row) {
    next.load(x + row * vectors, vectors, lane);
    if (added != nullptr) next_added.load(added + row * vectors, vectors, lane);
  };
  auto load_weights = [&] {
    weight.load(static_cast<const uint4*>(in.weight), vectors, lane);
    bias.load(static_cast<const uint4*>(in.bias), vectors, lane);
  };
  int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (row >= in.rows) return;
  if (kVectors <= kAhead) load(row);
  if (kVectors <= kAhead) load_weights();
  for (; row < in.rows; row += step) {
    if (kVectors > kAhead) load(row);
    Row<T, kVectors> value;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      value.part[v] = widen<T>(next.bits[v]);
      if (added == nullptr) continue;
      const Lanes<T> more = widen<T>(next_added.bits[v]);
#pragma unroll
      for (int i = 0; i < kL; ++i) value.part[v].value[i] += more.value[i];
      // As it is stored: backward normalises the stored sum.
      const uint4 stored = narrow<T>(value.part[v]);
      value.part[v] = widen<T>(stored);
      if (v * 32 + lane < vectors) sum[row * vectors + v * 32 + lane] = stored;
    }
    if (kVectors <= kAhead && row + step < in.rows) load(row + step);
    if (kVectors > kAhead) load_weights();
    normalise_row(in, value, weight, bias, row, y, means, inverses);
  }
}

// A warp takes rows in turn, reads the next one (with its statistics) while it computes, and keeps the sums
// of its columns in registers; the warps of a block add theirs up in shared memory, and the blocks leave
// partial sums.
template <class T, int kVectors>
__global__ void __launch_bounds__(kThreads)
    norm_backward_kernel(CudaLayerNorm in, const uint4* x, const float* means, const float* inverses,
                         const uint4* grad_y, const uint4* grad_sum, uint4* grad_x, float* partial) {
  constexpr int kL = kLanes<T>;
  extern __shared__ float shared[];  // [kWarps][width]
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int vectors = static_cast<int>(in.width) / kL;
  RawRow<T, kVectors> weight, value, g, more, next_value, next_g, next_more;
  weight.load(static_cast<const uint4*>(in.weight), vectors, lane);
  Row<T, kVectors> of_weight = {}, of_bias = {}, of_x = {};
  const float scale = 1.0f / static_cast<float>(in.width);
  const int64_t step = static_cast<int64_t>(gridDim.x) * kWarps;
  float next_mean = 0, next_inverse = 0;
  auto fetch = [&](int64_t row) {
    next_value.load(x + row * vectors, vectors, lane);
    next_g.load(grad_y + row * vectors, vectors, lane);
    if (grad_sum != nullptr) next_more.load(grad_sum + row * vectors, vectors, lane);
    next_mean = means[row];
    next_inverse = inverses[row];
  };
  int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + warp;
  if (row < in.rows) fetch(row);
  for (; row < in.rows; row += step) {
    value = next_value;
    g = next_g;
    more = next_more;
    const float mean = next_mean, inverse = next_inverse;
    if (row + step < in.rows) fetch(row + step);
    float sum = 0, product = 0;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const Lanes<T> dy = widen<T>(g.bits[v]), at = widen<T>(value.bits[v]), slope = widen<T>(weight.bits[v]);
#pragma unroll
      for (int i = 0; i < kL; ++i) {
        const float normal = (at.value[i] - mean) * inverse, through = dy.value[i] * slope.value[i];
        of_weight.part[v].value[i] = fmaf(dy.value[i], normal, of_weight.part[v].value[i]);
        of_bias.part[v].value[i] += dy.value[i];
        sum += through;
        product = fmaf(through, normal, product);
      }
    }
    sum = warp_sum(sum) * scale;
    product = warp_sum(product) * scale;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (v * 32 + lane >= vectors) continue;
      Lanes<T> out = widen<T>(g.bits[v]);
      const Lanes<T> at = widen<T>(value.bits[v]), slope = widen<T>(weight.bits[v]);
#pragma unroll
      for (int i = 0; i < kL; ++i)
        out.value[i] =
            inverse * (out.value[i] * slope.value[i] - sum - (at.value[i] - mean) * inverse * product);
      if (grad_sum != nullptr) {
        const Lanes<T> added = widen<T>(more.bits[v]);
#pragma unroll
        for (int i = 0; i < kL; ++i) out.value[i] += added.value[i];
      }
#pragma unroll
      for (int i = 0; i < kL; ++i) of_x.part[v].value[i] += out.value[i];
      grad_x[row * vectors + v * 32 + lane] = narrow<T>(out);
    }
  }
  auto leave = [&](const Row<T, kVectors>& sums, float* to) {
    __syncthreads();
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (v * 32 + lane >= vectors) continue;
#pragma unroll
      for (int i = 0; i < kL; ++i) shared[warp * in.width + (v * 32 + lane) * kL + i] = sums.part[v].value[i];
    }
    __syncthreads();
    for (int64_t column = threadIdx.x; column < in.width; column += kThreads) {
      float sum = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) sum += shared[w * in.width + column];
      to[blockIdx.x * in.width + column] = sum;
    }
  };
  leave(of_weight, partial);
  leave(of_bias, partial + gridDim.x * in.width);
  leave(of_x, partial + 2 * gridDim.x * in.width);
}

// Rows on their way to shared memory, where each thread reads what it has asked for itself: no registers are
// held meanwhile, and no barrier is needed.
template <class T, int kParts>
class Ring {
 public:
  static constexpr int kRows = sizeof(T) == 4 ? 2 : kWideRows;

  __device__ explicit Ring(uint4* memory) : memory_(memory + threadIdx.x) {}

  // One call per row, in turn. Starts copies of this thread's vectors; nullptr: none.
  template <class... From>
  __device__ void ask(const From*... from) {
    int part = 0;
    ((from != nullptr ? __pipeline_memcpy_async(place(last_, part), from, sizeof(uint4)) : void(), ++part),
     ...);
    __pipeline_commit();
    last_ = last_ + 1 == kRows ? 0 : last_ + 1;
  }
  // Waits for the row asked for kRows calls ago; its vectors stay until the next ask().
  __device__ void wait() const { __pipeline_wait_prior(kRows - 1); }
  __device__ const uint4& vector(int part) const { return *place(last_, part); }

  static int bytes(int threads) { return kRows * kParts * threads * static_cast<int>(sizeof(uint4)); }

 private:
  __device__ uint4* place(int row, int part) const { return memory_ + (row * kParts + part) * blockDim.x; }

  uint4* memory_;
  int last_ = 0;  // of kRows: the oldest, which is the next to be read and then to be asked for
};

// The same for rows that are too wide for a warp's registers: a block takes rows in turn, a thread one vector
// of each, and keeps the sums of its columns.
template <class T>
__global__ void __launch_bounds__(kWideThreads)
    wide_norm_backward_kernel(CudaLayerNorm in, const uint4* x, const float* means, const float* inverses,
                              const uint4* grad_y, const uint4* grad_sum, uint4* grad_x, float* partial) {
  constexpr int kL = kLanes<T>;
  // Of this row and the next: one barrier per row is enough.
  __shared__ float2 of_warp[2][kWidestThreads / 32];
  extern __shared__ uint4 rows_ahead[];
  Ring<T, 3> ring(rows_ahead);
  const int thread = static_cast<int>(threadIdx.x), warps = static_cast<int>(blockDim.x) / 32;
  const int vectors = static_cast<int>(in.width) / kL;
  const bool inside = thread < vectors;
  const float scale = 1.0f / static_cast<float>(in.width);
  const uint4 weight = inside ? static_cast<const uint4*>(in.weight)[thread] : uint4{};
  Lanes<T> of_weight = {}, of_bias = {}, of_x = {};
  auto ask = [&](int64_t row) {
    const bool some = inside && row < in.rows;
    const int64_t at = row * vectors + thread;
    ring.ask(some ? x + at : nullptr, some ? grad_y + at : nullptr,
             some && grad_sum != nullptr ? grad_sum + at : nullptr);
  };
  int64_t row = blockIdx.x;
#pragma unroll
  for (int i = 0; i < Ring<T, 3>::kRows; ++i) ask(row + static_cast<int64_t>(i) * gridDim.x);
  float next_mean = 0, next_inverse = 0;
  auto fetch_statistics = [&](int64_t of) {
    if (of >= in.rows) return;
    next_mean = means[of];
    next_inverse = inverses[of];
  };
  fetch_statistics(row);
  for (int turn = 0; row < in.rows; row += gridDim.x, turn ^= 1) {
    ring.wait();
    const uint4 value_bits = inside ? ring.vector(0) : uint4{}, g_bits = inside ? ring.vector(1) : uint4{};
    const uint4 more_bits = inside && grad_sum != nullptr ? ring.vector(2) : uint4{};
    const float mean = next_mean, inverse = next_inverse;
    fetch_statistics(row + gridDim.x);
    float2 own = {0, 0};
    const Lanes<T> value = widen<T>(value_bits), g = widen<T>(g_bits), slope = widen<T>(weight);
#pragma unroll
    for (int i = 0; i < kL; ++i) {
      const float normal = (value.value[i] - mean) * inverse, through = g.value[i] * slope.value[i];
      of_weight.value[i] = fmaf(g.value[i], normal, of_weight.value[i]);
      of_bias.value[i] += g.value[i];
      own.x += through;
      own.y = fmaf(through, normal, own.y);
    }
    own = {warp_sum(own.x), warp_sum(own.y)};
    if (thread % 32 == 0) of_warp[turn][thread / 32] = own;
    __syncthreads();
    ask(row + static_cast<int64_t>(Ring<T, 3>::kRows) * gridDim.x);
    float sum = 0, product = 0;
    for (int w = 0; w < warps; ++w) {
      sum += of_warp[turn][w].x;
      product += of_warp[turn][w].y;
    }
    sum *= scale;
    product *= scale;
    if (!inside) continue;
    Lanes<T> out;
#pragma unroll
    for (int i = 0; i < kL; ++i)
      out.value[i] =
          inverse * (g.value[i] * slope.value[i] - sum - (value.value[i] - mean) * inverse * product);
    if (grad_sum != nullptr) {
      const Lanes<T> more = widen<T>(more_bits);
#pragma unroll
      for (int i = 0; i < kL; ++i) out.value[i] += more.value[i];
    }
#pragma unroll
    for (int i = 0; i < kL; ++i) of_x.value[i] += out.value[i];
    grad_x[row * vectors + thread] = narrow<T>(out);
  }
  if (!inside) return;
  float* to = partial + blockIdx.x * in.width + static_cast<int64_t>(thread) * kL;
#pragma unroll
  for (int i = 0; i < kL; ++i) {
    to[i] = of_weight.value[i];
    to[gridDim.x * in.width + i] = of_bias.value[i];
    to[2 * gridDim.x * in.width + i] = of_x.value[i];
  }
}

// blockIdx.y: 0 for the weight, 1 for the bias, 2 for the columns of grad_x.
template <class T>
__global__ void norm_finish_kernel(const float* partial, int blocks, int64_t width, T* grad_weight,
                                   T* grad_bias, T* grad_x_sums) {
  const int64_t column = blockIdx.x * 32 + threadIdx.x;
  const double sum = sum_partials(partial + blockIdx.y * blocks * width, blocks, width, column);
  if (threadIdx.y != 0 || column >= width) return;
  T* to = blockIdx.y == 0 ? grad_weight : blockIdx.y == 1 ? grad_bias : grad_x_sums;
  to[column] = from_float<T>(static_cast<float>(sum));
}

int vectors_of(const CudaLayerNorm& in) {
  return static_cast<int>(in.width) / (in.type == CudaNumber::kFloat ? kLanes<float> : kLanes<__half>);
}

int wide_threads(const CudaLayerNorm& in) {
  return (vectors_of(in) + 31) / 32 * 32;
}

bool is_wide(const CudaLayerNorm& in) {
  return vectors_of(in) >= kWideVectors;
}

// At least two rows per warp, so that weights are read and sums are written less often than rows. No more
// blocks than registers have room for (two per multiprocessor at GPT-2's width): all run at once.
int backward_blocks(const CudaLayerNorm& in) {
  if (is_wide(in))
    return static_cast<int>(
        std::clamp<int64_t>(in.rows / 2, 1, kMultiprocessors * (kWideThreads / wide_threads(in))));
  return static_cast<int>(std::clamp<int64_t>(in.rows / (2 * kWarps), 1, kMostBlocks / 2));
}

// Calls body(std::integral_constant<int, n>{}) with the vectors of a lane.
template <class T, class Body>
void with_few_vectors(int64_t width, Body body) {
  const int64_t needed = (width / kLanes<T> + 31) / 32;
  if (needed <= 1) return body(std::integral_constant<int, 1>{});
  if (needed <= 2) return body(std::integral_constant<int, 2>{});
  if (needed <= 3) return body(std::integral_constant<int, 3>{});
  body(std::integral_constant<int, 4>{});
}

template <class T, class Body>
void with_vectors(int64_t width, Body body) {
  const int64_t needed = (width / kLanes<T> + 31) / 32;
  if (needed <= 4) return with_few_vectors<T>(width, body);
  if (needed <= 5) return body(std::integral_constant<int, 5>{});
  if (needed <= 6) return body(std::integral_constant<int, 6>{});
  if (needed <= 8) return body(std::integral_constant<int, 8>{});
  if constexpr (sizeof(T) == 4) {
    if (needed <= 12) return body(std::integral_constant<int, 12>{});
    return body(std::integral_constant<int, 16>{});
  }
}

}  // namespace

void layer_norm(const CudaLayerNorm& in, const void* x, const void* added, void* sum, void* y, float* mean,
                float* inverse) {
  with_number(in.type, [&](auto number) {
    using T = decltype(number);
    with_vectors<T>(in.width, [&](auto vectors) {
      const int64_t all = (in.rows + kWarps - 1) / kWarps;
      // As many blocks as registers have room for run at once; rows that are not read ahead have their own.
      const int64_t together = kMultiprocessors * (vectors.value == kAhead && sizeof(T) < 4 ? 3 : 4);
      const auto blocks = static_cast<unsigned>(vectors.value <= kAhead ? std::min(all, together) : all);
      norm_kernel<T, vectors.value><<<blocks, kThreads, 0, static_cast<cudaStream_t>(in.stream)>>>(
          in, static_cast<const uint4*>(x), static_cast<const uint4*>(added), static_cast<uint4*>(sum),
          static_cast<uint4*>(y), mean, inverse);
    });
  });
  check_launch("layer_norm");
}

int64_t layer_norm_workspace(const CudaLayerNorm& in) {
  return kSums * static_cast<int64_t>(backward_blocks(in)) * in.width;
}

void layer_norm_backward(const CudaLayerNorm& in, const void* x, const float* mean, const float* inverse,
                         const void* grad_y, const void* grad_sum, void* grad_x, void* grad_weight,
                         void* grad_bias, void* grad_x_sums, float* workspace) {
  const int blocks = backward_blocks(in);
  auto* stream = static_cast<cudaStream_t>(in.stream);
  const auto bytes = static_cast<unsigned>(kWarps * in.width * static_cast<int64_t>(sizeof(float)));
  with_number(in.type, [&](auto number) {
    using T = decltype(number);
    auto start = [&](auto* kernel, int threads, unsigned shared_bytes) {
      kernel<<<blocks, threads, shared_bytes, stream>>>(
          in, static_cast<const uint4*>(x), mean, inverse, static_cast<const uint4*>(grad_y),
          static_cast<const uint4*>(grad_sum), static_cast<uint4*>(grad_x), workspace);
    };
    if (is_wide(in)) {
      // Together with the kernel's own, the widest rows of fp32 need more than the 48 KB that are always
      // granted.
      const int ring = Ring<T, 3>::bytes(wide_threads(in));
      cudaFuncSetAttribute(wide_norm_backward_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, ring);
      start(wide_norm_backward_kernel<T>, wide_threads(in), static_cast<unsigned>(ring));
    } else {
      with_few_vectors<T>(
          in.width, [&](auto vectors) { start(norm_backward_kernel<T, vectors.value>, kThreads, bytes); });
    }
    const dim3 columns(static_cast<unsigned>((in.width + 31) / 32), kSums);
    norm_finish_kernel<T>
        <<<columns, dim3(32, 32), 0, stream>>>(workspace, blocks, in.width, static_cast<T*>(grad_weight),
                                               static_cast<T*>(grad_bias), static_cast<T*>(grad_x_sums));
  });
  check_launch("layer_norm_backward");
}

}  // namespace yoke::kernels
