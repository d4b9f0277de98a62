#include "yoke/kernels/cuda/bias_relu.h"

#include "yoke/kernels/cuda/columns.cuh"

namespace yoke::kernels {
namespace {

constexpr int kMostBlocks = 528;
constexpr int kRowsInFlight = 4;

Sweep sweep_of(const CudaBiasRelu& shape) {
  const int lanes = shape.type == CudaNumber::kFloat ? kLanes<float> : kLanes<__half>;
  return make_sweep(shape.rows, shape.channels, lanes, kMostBlocks, 2 * kRowsInFlight);
}

template <class T>
__global__ void __launch_bounds__(kSweepThreads) forward_kernel(Sweep sweep, bool relu, uint4* y, const uint4* bias) {
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
        if (relu && value.value[i] <= 0) value.value[i] = 0;
      }
      y[(row + u * at.step) * sweep.vectors + at.vector] = narrow<T>(value);
    }
  }
}

template <class T, bool kRelu>
__global__ void __launch_bounds__(kSweepThreads)
    backward_kernel(Sweep sweep, int64_t channels, const uint4* grad_y, const uint4* y, uint4* grad, float* partial) {
  extern __shared__ float shared[];
  const Place at = place_of(sweep);
  float sum[kLanes<T>] = {};
  if (at.inside) {
    for (int64_t row = at.first; row < sweep.rows; row += kRowsInFlight * at.step) {
      uint4 bits[kRowsInFlight], out[kRowsInFlight];
#pragma unroll
      for (int u = 0; u < kRowsInFlight; ++u) {
        const int64_t r = sweep.rows - 1 - (row + u * at.step);
        if (r < 0) continue;
        bits[u] = grad_y[r * sweep.vectors + at.vector];
        if (kRelu) out[u] = y[r * sweep.vectors + at.vector];
      }
#pragma unroll
      for (int u = 0; u < kRowsInFlight; ++u) {
        const int64_t r = sweep.rows - 1 - (row + u * at.step);
        if (r < 0) break;
        Lanes<T> g = widen<T>(bits[u]);
        if (kRelu) {
          const Lanes<T> value = widen<T>(out[u]);
#pragma unroll
          for (int i = 0; i < kLanes<T>; ++i)
            if (value.value[i] <= 0) g.value[i] = 0;
          grad[r * sweep.vectors + at.vector] = narrow<T>(g);
        }
#pragma unroll
        for (int i = 0; i < kLanes<T>; ++i) sum[i] += g.value[i];
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

}  // namespace

int64_t bias_relu_workspace(const CudaBiasRelu& shape) {
  return static_cast<int64_t>(sweep_of(shape).grid.y) * shape.channels;
}

void add_bias_relu(const CudaBiasRelu& shape, void* y, const void* bias) {
  const Sweep sweep = sweep_of(shape);
  with_number(shape.type, [&](auto number) {
    using T = decltype(number);
    forward_kernel<T><<<sweep.grid, sweep.threads(), 0, static_cast<cudaStream_t>(shape.stream)>>>(
        sweep, shape.relu, static_cast<uint4*>(y), static_cast<const uint4*>(bias));
  });
  check_launch("add_bias_relu");
}

void bias_relu_backward(const CudaBiasRelu& shape, const void* grad_y, const void* y, void* grad, void* grad_bias,
                        float* workspace) {
  const Sweep sweep = sweep_of(shape);
  auto* stream = static_cast<cudaStream_t>(shape.stream);
  const auto blocks = static_cast<int>(sweep.grid.y);
  with_number(shape.type, [&](auto number) {
    using T = decltype(number);
    const int bytes = sweep.threads() * kLanes<T> * static_cast<int>(sizeof(float));
    auto launch = [&](auto kernel) {
      kernel<<<sweep.grid, sweep.threads(), bytes, stream>>>(sweep, shape.channels, static_cast<const uint4*>(grad_y),
                                                             static_cast<const uint4*>(y), static_cast<uint4*>(grad),
                                                             workspace);
    };
    shape.relu ? launch(backward_kernel<T, true>) : launch(backward_kernel<T, false>);
    const auto columns = static_cast<unsigned>((shape.channels + 31) / 32);
    finish_kernel<T><<<columns, dim3(32, 32), 0, stream>>>(workspace, blocks, shape.channels,
                                                           static_cast<T*>(grad_bias));
  });
  check_launch("bias_relu_backward");
}

}  // namespace yoke::kernels
