#include "yoke/kernels/cuda/adamw.h"

#include "yoke/kernels/cuda/columns.cuh"

namespace yoke::kernels {
namespace {

constexpr int kParametersOfLaunch = 48;  // kernel arguments hold 4 KB
constexpr int kThreads = 256;
constexpr int kNumbers = 4;  // of a thread at once: sixteen bytes of fp32
constexpr int kRounds = 8;
constexpr int64_t kPiece = static_cast<int64_t>(kThreads) * kNumbers * kRounds;  // of one block

struct Launch {
  CudaAdamWParameter parameter[kParametersOfLaunch];
  int first_block[kParametersOfLaunch + 1];
  int count = 0;
};

struct Rule {
  float beta1, beta2, eps, lr, decay, correction1, correction2, factor;

  __device__ float moved(float master, float gradient, float& mean, float& square) const {
    gradient *= factor;
    master *= decay;
    mean = fmaf(1 - beta1, gradient - mean, mean);
    square = fmaf(beta2, square, (1 - beta2) * gradient * gradient);
    const float deviation = sqrtf(square) * correction2 + eps;
    return master - lr * correction1 * mean / deviation;
  }
};

template <class T>
struct Four {
  T number[kNumbers];
};

template <class T>
__device__ void update_four(const CudaAdamWParameter& p, const Rule& rule, int64_t at) {
  const auto gradient = *reinterpret_cast<const Four<T>*>(static_cast<const T*>(p.gradient) + at);
  auto master = *reinterpret_cast<float4*>(p.master + at), mean = *reinterpret_cast<float4*>(p.mean + at);
  auto square = *reinterpret_cast<float4*>(p.mean_square + at);
  float *w = &master.x, *m = &mean.x, *s = &square.x;
  Four<T> weight;
#pragma unroll
  for (int i = 0; i < kNumbers; ++i) {
    w[i] = rule.moved(w[i], to_float(gradient.number[i]), m[i], s[i]);
    weight.number[i] = from_float<T>(w[i]);
  }
  *reinterpret_cast<float4*>(p.master + at) = master;
  *reinterpret_cast<float4*>(p.mean + at) = mean;
  *reinterpret_cast<float4*>(p.mean_square + at) = square;
  if (p.weight != nullptr) *reinterpret_cast<Four<T>*>(static_cast<T*>(p.weight) + at) = weight;
}

template <class T>
__device__ void update_one(const CudaAdamWParameter& p, const Rule& rule, int64_t at) {
  float mean = p.mean[at], square = p.mean_square[at];
  const float master =
      rule.moved(p.master[at], to_float(static_cast<const T*>(p.gradient)[at]), mean, square);
  p.master[at] = master;
  p.mean[at] = mean;
  p.mean_square[at] = square;
  if (p.weight != nullptr) static_cast<T*>(p.weight)[at] = from_float<T>(master);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    adamw_kernel(const __grid_constant__ Launch launch, CudaAdamW options) {
  __shared__ Rule shared;
  __shared__ int owner;
  if (options.skip != nullptr && *options.skip != 0) return;
  if (threadIdx.x == 0) {
    int index = 0;
    while (launch.first_block[index + 1] <= static_cast<int>(blockIdx.x)) ++index;
    const double step = *launch.parameter[index].step, lr = *options.lr;
    shared = {static_cast<float>(options.beta1),
              static_cast<float>(options.beta2),
              static_cast<float>(options.eps),
              static_cast<float>(lr),
              static_cast<float>(1 - lr * options.weight_decay),
              static_cast<float>(1 / (1 - pow(options.beta1, step))),
              static_cast<float>(1 / sqrt(1 - pow(options.beta2, step))),
              options.divisor == nullptr ? 1.0f : 1.0f / *options.divisor};
    owner = index;
  }
  __syncthreads();
  const Rule rule = shared;
  const CudaAdamWParameter& p = launch.parameter[owner];
  const int64_t begin = (static_cast<int64_t>(blockIdx.x) - launch.first_block[owner]) * kPiece;
  const int64_t end = min(begin + kPiece, p.count);
  const auto bits = reinterpret_cast<uintptr_t>(p.gradient) | reinterpret_cast<uintptr_t>(p.weight) |
                    reinterpret_cast<uintptr_t>(p.master) | reinterpret_cast<uintptr_t>(p.mean) |
                    reinterpret_cast<uintptr_t>(p.mean_square);
  const int64_t wide = bits % 16 == 0 ? begin + (end - begin) / kNumbers * kNumbers : begin;
#pragma unroll 2
  for (int64_t at = begin + threadIdx.x * kNumbers; at < wide; at += kThreads * kNumbers)
    update_four<T>(p, rule, at);
  for (int64_t at = wide + threadIdx.x; at < end; at += kThreads) update_one<T>(p, rule, at);
}

void run(const CudaAdamW& rule, const Launch& launch) {
  if (launch.count == 0) return;
  with_number(rule.type, [&](auto number) {
    adamw_kernel<decltype(number)>
        <<<launch.first_block[launch.count], kThreads, 0, static_cast<cudaStream_t>(rule.stream)>>>(launch,
                                                                                                    rule);
  });
  check_launch("adamw");
}

}  // namespace

void adamw(const CudaAdamW& rule, const std::vector<CudaAdamWParameter>& parameters) {
  Launch launch;
  launch.first_block[0] = 0;
  for (const CudaAdamWParameter& parameter : parameters) {
    if (parameter.count == 0) continue;
    launch.parameter[launch.count] = parameter;
    const auto blocks = static_cast<int>((parameter.count + kPiece - 1) / kPiece);
    launch.first_block[launch.count + 1] = launch.first_block[launch.count] + blocks;
    if (++launch.count < kParametersOfLaunch) continue;
    run(rule, launch);
    launch.count = 0;
  }
  run(rule, launch);
}

}  // namespace yoke::kernels
