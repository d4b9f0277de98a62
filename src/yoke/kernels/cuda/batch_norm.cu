#include "yoke/kernels/cuda/batch_norm.h"

#include "yoke/kernels/cuda/columns.cuh"

// Every second pass starts where the one before ended: those rows are still in cache.
namespace yoke::kernels {
namespace {

constexpr int kMostBlocks = 528;  // four for each multiprocessor of an H100 or H200
constexpr int kRowsInFlight = 4;  // loads per thread before it uses the first
constexpr int kMomentsInFlight = 2;

Sweep sweep_of(const CudaBatchNorm& in, int in_flight = kRowsInFlight) {
  const int lanes = in.type == CudaNumber::kFloat ? kLanes<float> : kLanes<__half>;
  return make_sweep(in.rows, in.channels, lanes, kMostBlocks, 2 * in_flight);
}

cudaStream_t stream_of(const CudaBatchNorm& in) {
  return static_cast<cudaStream_t>(in.stream);
}

__device__ float parameter_at(const void* data, CudaNumber type, int64_t at, float absent) {
  if (data == nullptr) return absent;
  if (type == CudaNumber::kFloat) return static_cast<const float*>(data)[at];
  if (type == CudaNumber::kBf16) return to_float(static_cast<const __nv_bfloat16*>(data)[at]);
  return to_float(static_cast<const __half*>(data)[at]);
}

__device__ void set_parameter(void* data, CudaNumber type, int64_t at, float value) {
  if (type == CudaNumber::kFloat) static_cast<float*>(data)[at] = value;
  if (type == CudaNumber::kBf16) static_cast<__nv_bfloat16*>(data)[at] = __float2bfloat16(value);
  if (type == CudaNumber::kHalf) static_cast<__half*>(data)[at] = __float2half(value);
}

// What a thread knows of its columns.
template <class T>
struct Columns {
  float mean[kLanes<T>];
  float slope[kLanes<T>];  // weight / deviation
  float bias[kLanes<T>];

  __device__ Columns(const CudaBatchNorm& in, const float* means, const float* variances, int64_t first) {
#pragma unroll
    for (int i = 0; i < kLanes<T>; ++i) {
      mean[i] = means[first + i];
      slope[i] =
          parameter_at(in.weight, in.parameter_type, first + i, 1.0f) * rsqrtf(variances[first + i] + in.eps);
      bias[i] = parameter_at(in.bias, in.parameter_type, first + i, 0.0f);
    }
  }
  __device__ float normalised(float x, int i) const {
    return fmaf(x - mean[i], slope[i], bias[i]);
  }
};

// ---- statistics ----

// Sums of x - pivot and of its square, with the first row as pivot: a large channel mean cancels before
// squaring.
template <class T>
__global__ void __launch_bounds__(kSweepThreads, 3)
    moments_kernel(CudaBatchNorm in, Sweep sweep, float* partial) {
  extern __shared__ float shared[];
  constexpr int kL = kLanes<T>;
  const Place at = place_of(sweep);
  const auto* x = static_cast<const uint4*>(in.x);
  float sum[kL] = {}, square[kL] = {};
  if (at.inside) {
    const Lanes<T> pivot = widen<T>(x[at.vector]);
    for (int64_t row = at.first; row < sweep.rows; row += kMomentsInFlight * at.step) {
      uint4 bits[kMomentsInFlight];
#pragma unroll
      for (int u = 0; u < kMomentsInFlight; ++u) {
        const int64_t r = sweep.rows - 1 - (row + u * at.step);
        if (r >= 0) bits[u] = x[r * sweep.vectors + at.vector];
      }
#pragma unroll
      for (int u = 0; u < kMomentsInFlight; ++u) {
        if (row + u * at.step >= sweep.rows) break;
        const Lanes<T> value = widen<T>(bits[u]);
#pragma unroll
        for (int i = 0; i < kL; ++i) {
          const float d = value.value[i] - pivot.value[i];
          sum[i] += d;
          square[i] = fmaf(d, d, square[i]);
        }
      }
    }
  }
  write_partial(sweep, sum, partial, in.channels, shared);
  write_partial(sweep, square, partial + gridDim.y * in.channels, in.channels, shared);
}

template <class T>
__global__ void finish_moments_kernel(CudaBatchNorm in, const float* partial, int blocks, float* mean,
                                      float* variance, CudaRunningStatistics running) {
  const int64_t channel = blockIdx.x * 32 + threadIdx.x;
  const double sum = sum_partials(partial, blocks, in.channels, channel);
  const double square = sum_partials(partial + blocks * in.channels, blocks, in.channels, channel);
  if (threadIdx.y != 0 || channel >= in.channels) return;
  const double count = static_cast<double>(in.rows), offset = sum / count;
  const double spread = fmax(square / count - offset * offset, 0.0);
  // fmax would hide a NaN of the input.
  const double biased = isnan(square) ? square : spread;
  const double centre = to_float(static_cast<const T*>(in.x)[channel]) + offset;
  mean[channel] = static_cast<float>(centre);
  variance[channel] = static_cast<float>(biased);
  if (running.mean == nullptr) return;
  const double unbiased = biased * (count / fmax(count - 1, 1.0)), momentum = running.momentum;
  const float old_mean = parameter_at(running.mean, running.type, channel, 0);
  const float old_variance = parameter_at(running.variance, running.type, channel, 0);
  set_parameter(running.mean, running.type, channel,
                static_cast<float>((1 - momentum) * old_mean + momentum * centre));
  set_parameter(running.variance, running.type, channel,
                static_cast<float>((1 - momentum) * old_variance + momentum * unbiased));
}

// ---- forward ----

template <class T, bool kResidual>
__global__ void __launch_bounds__(kSweepThreads)
    apply_kernel(CudaBatchNorm in, Sweep sweep, const float* means, const float* variances, uint4* y,
                 uint8_t* mask) {
  constexpr int kL = kLanes<T>;
  const Place at = place_of(sweep);
  if (!at.inside) return;
  const auto* x = static_cast<const uint4*>(in.x);
  const auto* residual = static_cast<const uint4*>(in.residual);
  const Columns<T> columns(in, means, variances, static_cast<int64_t>(at.vector) * kL);
  for (int64_t row = at.first; row < sweep.rows; row += kRowsInFlight * at.step) {
    uint4 bits[kRowsInFlight], added[kRowsInFlight];
#pragma unroll
    for (int u = 0; u < kRowsInFlight; ++u) {
      const int64_t r = row + u * at.step;
      if (r >= sweep.rows) continue;
      bits[u] = x[r * sweep.vectors + at.vector];
      if (kResidual) added[u] = residual[r * sweep.vectors + at.vector];
    }
#pragma unroll
    for (int u = 0; u < kRowsInFlight; ++u) {
      const int64_t r = row + u * at.step;
      if (r >= sweep.rows) break;
      Lanes<T> value = widen<T>(bits[u]);
      Lanes<T> more;
      if (kResidual) more = widen<T>(added[u]);
#pragma unroll
      for (int i = 0; i < kL; ++i) {
        value.value[i] = columns.normalised(value.value[i], i);
        if (kResidual) value.value[i] += more.value[i];
        // Not fmaxf, which would turn NaN into 0.
        if (in.relu && value.value[i] <= 0) value.value[i] = 0;
      }
      const uint4 out = narrow<T>(value);
      y[r * sweep.vectors + at.vector] = out;
      if (!kResidual || mask == nullptr) continue;
      unsigned positive = 0;
      const Lanes<T> stored = widen<T>(out);
#pragma unroll
      for (int i = 0; i < kL; ++i) positive |= static_cast<unsigned>(!(stored.value[i] <= 0)) << i;
      mask[r * sweep.vectors + at.vector] = static_cast<uint8_t>(positive);
    }
  }
}

// ---- backward ----

enum class Gate { kOpen, kFromX, kMask };  // where ReLU was active

struct Staged {
  const uint4* first;
  int64_t pitch;  // of `first`, in vectors
  const uint8_t* mask;
  uint4* store;  // read by the second pass; nullptr: it reads `first`
};

// Sums of g and of g * (x - mean) a channel, g being the gradient behind ReLU.
template <class T, Gate kGate>
__global__ void __launch_bounds__(kSweepThreads)
    backward_sums_kernel(CudaBatchNorm in, Sweep sweep, const float* means, const float* variances,
                         Staged staged, float* partial) {
  extern __shared__ float shared[];
  constexpr int kL = kLanes<T>;
  const Place at = place_of(sweep);
  const auto* x = static_cast<const uint4*>(in.x);
  float sum[kL] = {}, product[kL] = {};
  if (at.inside) {
    const Columns<T> columns(in, means, variances, static_cast<int64_t>(at.vector) * kL);
    for (int64_t row = at.first; row < sweep.rows; row += kRowsInFlight * at.step) {
      uint4 bits[kRowsInFlight], gradients[kRowsInFlight];
      uint8_t masks[kRowsInFlight];
#pragma unroll
      for (int u = 0; u < kRowsInFlight; ++u) {
        const int64_t r = sweep.rows - 1 - (row + u * at.step);
        if (r < 0) continue;
        const int64_t place = r * sweep.vectors + at.vector;
        bits[u] = x[place];
        gradients[u] = staged.first[r * staged.pitch + at.vector];
        if (kGate == Gate::kMask) masks[u] = staged.mask[place];
      }
#pragma unroll
      for (int u = 0; u < kRowsInFlight; ++u) {
        const int64_t r = sweep.rows - 1 - (row + u * at.step);
        if (r < 0) break;
        const Lanes<T> value = widen<T>(bits[u]);
        Lanes<T> g = widen<T>(gradients[u]);
#pragma unroll
        for (int i = 0; i < kL; ++i) {
          if (kGate == Gate::kMask && !(masks[u] >> i & 1)) g.value[i] = 0;
          if (kGate == Gate::kFromX && to_float(from_float<T>(columns.normalised(value.value[i], i))) <= 0)
            g.value[i] = 0;
        }
        if (staged.store != nullptr) {
          const uint4 out = narrow<T>(g);
          staged.store[r * sweep.vectors + at.vector] = out;
          g = widen<T>(out);  // as the second pass sees it
        }
#pragma unroll
        for (int i = 0; i < kL; ++i) {
          sum[i] += g.value[i];
          product[i] = fmaf(g.value[i], value.value[i] - columns.mean[i], product[i]);
        }
      }
    }
  }
  write_partial(sweep, sum, partial, in.channels, shared);
  write_partial(sweep, product, partial + gridDim.y * in.channels, in.channels, shared);
}

// Gradients of weight and bias; `means`: of g and of g * (x - mean) / variance, for the second pass.
__global__ void finish_sums_kernel(CudaBatchNorm in, CudaBatchNormGradients g, const float* partial,
                                   int blocks, float* means) {
  const int64_t channel = blockIdx.x * 32 + threadIdx.x;
  const double sum = sum_partials(partial, blocks, in.channels, channel);
  const double product = sum_partials(partial + blocks * in.channels, blocks, in.channels, channel);
  if (threadIdx.y != 0 || channel >= in.channels) return;
  const double variance = static_cast<double>(g.variance[channel]) + in.eps;
  const double count = static_cast<double>(in.rows);
  if (g.grad_weight != nullptr)
    set_parameter(g.grad_weight, in.parameter_type, channel, static_cast<float>(product * rsqrt(variance)));
  if (g.grad_bias != nullptr) set_parameter(g.grad_bias, in.parameter_type, channel, static_cast<float>(sum));
  means[channel] = static_cast<float>(sum / count);
  means[in.channels + channel] = static_cast<float>(product / variance / count);
}

// grad_x = slope * (g - mean of g - (x - mean) * mean of g (x - mean) / variance). In place where g is
// grad_x.
template <class T, Gate kGate>
__global__ void __launch_bounds__(kSweepThreads)
    backward_apply_kernel(CudaBatchNorm in, Sweep sweep, const float* centre, const float* variances,
                          const uint4* gradient, int64_t pitch, const float* means, uint4* grad_x) {
  constexpr int kL = kLanes<T>;
  const Place at = place_of(sweep);
  if (!at.inside) return;
  const auto* x = static_cast<const uint4*>(in.x);
  const int64_t first = static_cast<int64_t>(at.vector) * kL;
  const Columns<T> columns(in, centre, variances, first);
  float of_g[kL], of_product[kL];
#pragma unroll
  for (int i = 0; i < kL; ++i) {
    of_g[i] = means[first + i];
    of_product[i] = means[in.channels + first + i];
  }
  for (int64_t row = at.first; row < sweep.rows; row += kRowsInFlight * at.step) {
    uint4 bits[kRowsInFlight], gradients[kRowsInFlight];
#pragma unroll
    for (int u = 0; u < kRowsInFlight; ++u) {
      const int64_t r = row + u * at.step;
      if (r >= sweep.rows) continue;
      bits[u] = x[r * sweep.vectors + at.vector];
      gradients[u] = gradient[r * pitch + at.vector];
    }
#pragma unroll
    for (int u = 0; u < kRowsInFlight; ++u) {
      const int64_t r = row + u * at.step;
      if (r >= sweep.rows) break;
      const Lanes<T> value = widen<T>(bits[u]);
      Lanes<T> g = widen<T>(gradients[u]);
#pragma unroll
      for (int i = 0; i < kL; ++i) {
        if (kGate == Gate::kFromX && to_float(from_float<T>(columns.normalised(value.value[i], i))) <= 0)
          g.value[i] = 0;
        const float d = value.value[i] - columns.mean[i];
        g.value[i] = columns.slope[i] * (g.value[i] - of_g[i] - d * of_product[i]);
      }
      grad_x[r * sweep.vectors + at.vector] = narrow<T>(g);
    }
  }
}

template <class T>
int shared_bytes(const Sweep& sweep) {
  return sweep.threads() * kLanes<T> * static_cast<int>(sizeof(float));
}

dim3 columns_grid(const CudaBatchNorm& in) {
  return dim3(static_cast<unsigned>((in.channels + 31) / 32));
}

template <class T>
void sums(const CudaBatchNorm& in, const Sweep& sweep, const CudaBatchNormGradients& g, const Staged& staged,
          Gate gate, float* partial) {
  auto launch = [&](auto kernel) {
    kernel<<<sweep.grid, sweep.threads(), shared_bytes<T>(sweep), stream_of(in)>>>(
        in, sweep, g.mean, g.variance, staged, partial);
  };
  if (gate == Gate::kOpen) launch(backward_sums_kernel<T, Gate::kOpen>);
  if (gate == Gate::kFromX) launch(backward_sums_kernel<T, Gate::kFromX>);
  if (gate == Gate::kMask) launch(backward_sums_kernel<T, Gate::kMask>);
}

}  // namespace

int64_t batch_norm_workspace(const CudaBatchNorm& in) {
  const Sweep most = sweep_of(in, kMomentsInFlight);
  return (static_cast<int64_t>(most.grid.y) + 1) * 2 * in.channels;
}

void batch_norm_statistics(const CudaBatchNorm& in, float* mean, float* variance,
                           const CudaRunningStatistics& running, float* workspace) {
  const Sweep sweep = sweep_of(in, kMomentsInFlight);
  with_number(in.type, [&](auto number) {
    using T = decltype(number);
    moments_kernel<T>
        <<<sweep.grid, sweep.threads(), shared_bytes<T>(sweep), stream_of(in)>>>(in, sweep, workspace);
    finish_moments_kernel<T><<<columns_grid(in), dim3(32, 32), 0, stream_of(in)>>>(
        in, workspace, static_cast<int>(sweep.grid.y), mean, variance, running);
  });
  check_launch("batch_norm_statistics");
}

void batch_norm_apply(const CudaBatchNorm& in, const float* mean, const float* variance, void* y,
                      uint8_t* mask) {
  const Sweep sweep = sweep_of(in);
  with_number(in.type, [&](auto number) {
    using T = decltype(number);
    auto launch = [&](auto kernel) {
      kernel<<<sweep.grid, sweep.threads(), 0, stream_of(in)>>>(in, sweep, mean, variance,
                                                                static_cast<uint4*>(y), mask);
    };
    in.residual != nullptr ? launch(apply_kernel<T, true>) : launch(apply_kernel<T, false>);
  });
  check_launch("batch_norm_apply");
}

void batch_norm_backward(const CudaBatchNorm& in, const CudaBatchNormGradients& g, float* workspace) {
  const Sweep sweep = sweep_of(in);
  const Gate gate = !in.relu ? Gate::kOpen : g.mask != nullptr ? Gate::kMask : Gate::kFromX;
  // The first pass stores what the second would have to recompute.
  const bool store = gate == Gate::kMask || g.grad_residual != nullptr;
  void* kept = !store ? nullptr : g.grad_residual != nullptr ? g.grad_residual : g.grad_x;
  const auto blocks = static_cast<int>(sweep.grid.y);
  float* means = workspace + static_cast<int64_t>(blocks) * 2 * in.channels;
  with_number(in.type, [&](auto number) {
    using T = decltype(number);
    const int64_t pitch = (g.grad_y_pitch == 0 ? in.channels : g.grad_y_pitch) / kLanes<T>;
    const Staged staged{static_cast<const uint4*>(g.grad_y), pitch, g.mask, static_cast<uint4*>(kept)};
    sums<T>(in, sweep, g, staged, gate, workspace);
    finish_sums_kernel<<<columns_grid(in), dim3(32, 32), 0, stream_of(in)>>>(in, g, workspace, blocks, means);
    const auto* gradient = static_cast<const uint4*>(store ? kept : g.grad_y);
    auto launch = [&](auto kernel) {
      kernel<<<sweep.grid, sweep.threads(), 0, stream_of(in)>>>(in, sweep, g.mean, g.variance, gradient,
                                                                store ? sweep.vectors : pitch, means,
                                                                static_cast<uint4*>(g.grad_x));
    };
    gate == Gate::kFromX && !store ? launch(backward_apply_kernel<T, Gate::kFromX>)
                                   : launch(backward_apply_kernel<T, Gate::kOpen>);
  });
  check_launch("batch_norm_backward");
}

}  // namespace yoke::kernels
