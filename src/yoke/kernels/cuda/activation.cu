#include "yoke/kernels/cuda/activation.h"

#include "yoke/kernels/cuda/columns.cuh"

namespace yoke::kernels {
namespace {

constexpr int kMostBlocks = 528;
constexpr int kRowsInFlight = 4;

Sweep sweep_of(const CudaActivation& shape) {
  const int lanes = shape.type == CudaNumber::kFloat ? kLanes<float> : kLanes<__half>;
  return make_sweep(shape.rows, shape.channels, lanes, kMostBlocks, 2 * kRowsInFlight);
}

template <class T>
__global__ void __launch_bounds__(kSweepThreads)
    add_bias_relu_kernel(Sweep sweep, uint4* y, const uint4* bias) {
  const Place at = place_of(sweep);
  if (!at.inside) return;
  const Lanes<T> add = widen<T>(bias[at.vector]);
  for (int64_t row = at.first; row < sweep.rows; row += kRowsInFlight * at.step) {
    uint4 bits[kRowsInFlight];
#pragma unroll
    for (int u = 0; u < kRowsInFlight; ++u)
      if (row + u * at.step < sweep.rows) bits[u] = y[(row + u * at.step) * sweep.vectors + at.vector];
#pragma unroll
    for (int u = 0; u < kRowsInFlight; ++u) {
      if (row + u * at.step >= sweep.rows) break;
      Lanes<T> value = widen<T>(bits[u]);
#pragma unroll
      for (int i = 0; i < kLanes<T>; ++i) {
        value.value[i] += add.value[i];
        if (value.value[i] <= 0) value.value[i] = 0;
      }
      y[(row + u * at.step) * sweep.vectors + at.vector] = narrow<T>(value);
    }
  }
}

// Effect of an activation on a gradient; `kept` is its result or its argument.
template <class>
struct NoGradient {
  static constexpr bool kChanges = false;
  __device__ static float of(float gradient, float) { return gradient; }
};

template <class>
struct ReluGradient {
  static constexpr bool kChanges = true;
  __device__ static float of(float gradient, float kept) { return kept <= 0 ? 0.0f : gradient; }
};

// Accurate to 1e-6: one exponential, where tanhf would cost more than the memory access.
__device__ float tanh_of(float x, float) {
  return 1 - __fdividef(2.0f, 1 + __expf(2 * x));
}

// Accurate to 5e-4, which is half a rounding of these formats: one instruction.
template <class Narrow>
__device__ float tanh_of(float x, Narrow) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

template <class T>
struct GeluGradient {
  static constexpr bool kChanges = true;
  __device__ static float of(float gradient, float kept) {
    constexpr float kSlope = 0.7978845608028654f, kCubic = 0.044715f;  // sqrt(2 / pi)
    const float square = kept * kept;
    const float t = tanh_of(kSlope * kept * fmaf(kCubic, square, 1.0f), T{});
    const float inner = fmaf(3 * kCubic * kSlope, square, kSlope);
    const float half = 0.5f * gradient;
    return half * fmaf(kept * inner, fmaf(-t, t, 1.0f), 1 + t);
  }
};

template <class T, class Gradient>
__global__ void __launch_bounds__(kSweepThreads)
    backward_kernel(Sweep sweep, int64_t channels, const uint4* grad_y, const uint4* kept, uint4* grad,
                    float* partial) {
  extern __shared__ float shared[];
  const Place at = place_of(sweep);
  float sum[kLanes<T>] = {};
  if (at.inside) {
    for (int64_t row = at.first; row < sweep.rows; row += kRowsInFlight * at.step) {
      uint4 bits[kRowsInFlight], others[kRowsInFlight];
#pragma unroll
      for (int u = 0; u < kRowsInFlight; ++u) {
        const int64_t r = sweep.rows - 1 - (row + u * at.step);
        if (r < 0) continue;
        bits[u] = grad_y[r * sweep.vectors + at.vector];
        if (Gradient::kChanges) others[u] = kept[r * sweep.vectors + at.vector];
      }
#pragma unroll
      for (int u = 0; u < kRowsInFlight; ++u) {
        const int64_t r = sweep.rows - 1 - (row + u * at.step);
        if (r < 0) break;
        Lanes<T> g = widen<T>(bits[u]);
        Lanes<T> value = {};
        if (Gradient::kChanges) value = widen<T>(others[u]);
#pragma unroll
        for (int i = 0; i < kLanes<T>; ++i) {
          g.value[i] = Gradient::of(g.value[i], value.value[i]);
          sum[i] += g.value[i];
        }
        if (Gradient::kChanges) grad[r * sweep.vectors + at.vector] = narrow<T>(g);
      }
    }
  }
  write_partial(sweep, sum, partial, channels, shared);
}

template <class T>
__global__ void finish_kernel(const float* partial, int blocks, int64_t channels, T* grad_bias) {
  const int64_t channel = blockIdx.x * 32 + threadIdx.x;
  const double sum = sum_partials(partial, blocks, channels, channel);
  if (threadIdx.y == 0 && channel < channels) grad_bias[channel] = from_float<T>(static_cast<float>(sum));
}

template <template <class> class Gradient>
void backward(const CudaActivation& shape, const void* grad_y, const void* kept, void* grad, void* grad_bias,
              float* workspace) {
  const Sweep sweep = sweep_of(shape);
  auto* stream = static_cast<cudaStream_t>(shape.stream);
  with_number(shape.type, [&](auto number) {
    using T = decltype(number);
    const int bytes = sweep.threads() * kLanes<T> * static_cast<int>(sizeof(float));
    backward_kernel<T, Gradient<T>><<<sweep.grid, sweep.threads(), bytes, stream>>>(
        sweep, shape.channels, static_cast<const uint4*>(grad_y), static_cast<const uint4*>(kept),
        static_cast<uint4*>(grad), workspace);
    const auto columns = static_cast<unsigned>((shape.channels + 31) / 32);
    finish_kernel<T><<<columns, dim3(32, 32), 0, stream>>>(workspace, static_cast<int>(sweep.grid.y),
                                                           shape.channels, static_cast<T*>(grad_bias));
  });
  check_launch("gradient of an activation");
}

}  // namespace

int64_t activation_workspace(const CudaActivation& shape) {
  return static_cast<int64_t>(sweep_of(shape).grid.y) * shape.channels;
}

void add_bias_relu(const CudaActivation& shape, void* y, const void* bias) {
  const Sweep sweep = sweep_of(shape);
  with_number(shape.type, [&](auto number) {
    using T = decltype(number);
    add_bias_relu_kernel<T><<<sweep.grid, sweep.threads(), 0, static_cast<cudaStream_t>(shape.stream)>>>(
        sweep, static_cast<uint4*>(y), static_cast<const uint4*>(bias));
  });
  check_launch("add_bias_relu");
}

void column_sums(const CudaActivation& shape, const void* x, void* sums, float* workspace) {
  backward<NoGradient>(shape, x, nullptr, nullptr, sums, workspace);
}

void relu_backward(const CudaActivation& shape, const void* grad_y, const void* y, void* grad,
                   void* grad_bias, float* workspace) {
  backward<ReluGradient>(shape, grad_y, y, grad, grad_bias, workspace);
}

void gelu_backward(const CudaActivation& shape, const void* grad_y, const void* z, void* grad,
                   void* grad_bias, float* workspace) {
  backward<GeluGradient>(shape, grad_y, z, grad, grad_bias, workspace);
}

}  // namespace yoke::kernels
