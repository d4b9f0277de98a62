#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>
#include <fmt/format.h>

#include "yoke/base/error.h"
#include "yoke/compute/bench_kernels.h"
#include "yoke/compute/image_tensors_cuda.h"
#include "yoke/kernels/cuda/activation.h"
#include "yoke/kernels/cuda/adamw.h"
#include "yoke/kernels/cuda/batch_norm.h"
#include "yoke/kernels/cuda/cross_entropy.h"
#include "yoke/kernels/cuda/have_kernels.h"
#include "yoke/kernels/cuda/layer_norm.h"
#include "yoke/kernels/cuda/pack.h"
#include "yoke/kernels/cuda/pool.h"

namespace yoke::compute::cuda {
namespace {

using torch::Tensor;

constexpr int64_t kWidth = 768, kInner = 4 * kWidth, kHeads = 12, kVocabulary = 50257, kPadded = 50304;
constexpr int64_t kChannels = 256, kCacheBytes = 256 << 20;

std::string shape_of(const Tensor& x) {
  return fmt::format("{} x {}", x.size(0), x.size(1));
}

int64_t bytes_of(const Tensor& x) {
  return static_cast<int64_t>(x.nbytes());
}

void bench_layer_norm(KernelBench& bench, int64_t rows) {
  Tensor x = bench.matrix(rows, kWidth), added = bench.matrix(rows, kWidth), sum = at::empty_like(x);
  Tensor y = at::empty_like(x), grad_x = at::empty_like(x);
  Tensor weight = bench.matrix(1, kWidth), bias = bench.matrix(1, kWidth);
  Tensor grad_weight = at::empty_like(weight), grad_bias = at::empty_like(bias), sums = at::empty_like(bias);
  Tensor mean = scratch(rows, x), inverse = scratch(rows, x);
  kernels::CudaLayerNorm in{*number_of(x),         rows,  kWidth,      weight.const_data_ptr(),
                            bias.const_data_ptr(), 1e-5f, stream_of(x)};
  auto forward = [&](const void* more, void* to) {
    kernels::layer_norm(in, x.const_data_ptr(), more, to, y.data_ptr(), mean.data_ptr<float>(),
                        inverse.data_ptr<float>());
  };
  bench.measure("layer_norm", shape_of(x), 2 * bytes_of(x), [&] { forward(nullptr, nullptr); });
  bench.measure("add, layer_norm", shape_of(x), 4 * bytes_of(x),
                [&] { forward(added.const_data_ptr(), sum.data_ptr()); });
  Tensor workspace = scratch(kernels::layer_norm_workspace(in), x);
  bench.measure("layer_norm_backward, add", shape_of(x), 4 * bytes_of(x), [&] {
    kernels::layer_norm_backward(in, x.const_data_ptr(), mean.const_data_ptr<float>(),
                                 inverse.const_data_ptr<float>(), y.const_data_ptr(), sum.const_data_ptr(),
                                 grad_x.data_ptr(), grad_weight.data_ptr(), grad_bias.data_ptr(),
                                 sums.data_ptr(), workspace.data_ptr<float>());
  });
}

void bench_activations(KernelBench& bench, int64_t rows) {
  Tensor x = bench.matrix(rows, kInner), y = bench.matrix(rows, kInner), z = at::empty_like(x);
  Tensor bias = bench.matrix(1, kInner), sums = at::empty_like(bias);
  kernels::CudaActivation in{*number_of(x), rows, kInner, stream_of(x)};
  Tensor workspace = scratch(kernels::activation_workspace(in), x);
  auto* scratch_memory = workspace.data_ptr<float>();
  bench.measure("gelu_backward, bias", shape_of(x), 3 * bytes_of(x), [&] {
    kernels::gelu_backward(in, x.const_data_ptr(), y.const_data_ptr(), z.data_ptr(), sums.data_ptr(),
                           scratch_memory);
  });
  bench.measure("relu_backward, bias", shape_of(x), 3 * bytes_of(x), [&] {
    kernels::relu_backward(in, x.const_data_ptr(), y.const_data_ptr(), z.data_ptr(), sums.data_ptr(),
                           scratch_memory);
  });
  bench.measure("add_bias, ReLU", shape_of(x), 2 * bytes_of(x),
                [&] { kernels::add_bias_relu(in, z.data_ptr(), bias.const_data_ptr()); });
  bench.measure("column_sums", shape_of(x), bytes_of(x),
                [&] { kernels::column_sums(in, x.const_data_ptr(), sums.data_ptr(), scratch_memory); });
}

void bench_pack(KernelBench& bench, int64_t rows) {
  Tensor parts[3] = {bench.matrix(rows, kWidth), bench.matrix(rows, kWidth), bench.matrix(rows, kWidth)};
  Tensor packed = bench.matrix(rows, 3 * kWidth), sums = bench.matrix(1, 3 * kWidth);
  kernels::CudaPacking in{*number_of(packed), 1, rows, kHeads, kWidth / kHeads, stream_of(packed)};
  kernels::CudaHeads from[3];
  for (size_t i = 0; i < 3; ++i)
    from[i] = {parts[i].const_data_ptr(), rows * kWidth, kWidth / kHeads, kWidth};
  Tensor workspace = scratch(kernels::pack_workspace(in), packed);
  bench.measure("pack_heads, bias", shape_of(packed), 2 * bytes_of(packed), [&] {
    kernels::pack_heads(in, from, packed.data_ptr(), sums.data_ptr(), workspace.data_ptr<float>());
  });
}

void bench_loss(KernelBench& bench, int64_t rows) {
  Tensor logits = bench.matrix(rows, kPadded), losses = scratch(rows, logits);
  Tensor target = torch::randint(kVocabulary, {rows}, logits.options().dtype(torch::kLong));
  bench.measure("cross_entropy", shape_of(logits), 2 * bytes_of(logits), [&] {
    kernels::cross_entropy({*number_of(logits), logits.data_ptr(), target.const_data_ptr<int64_t>(),
                            losses.data_ptr<float>(), rows, kVocabulary, kPadded, 1.0f, nullptr,
                            stream_of(logits)});
  });
}

void bench_batch_norm(KernelBench& bench, int64_t rows) {
  Tensor x = bench.matrix(rows, kChannels), residual = bench.matrix(rows, kChannels);
  Tensor y = at::empty_like(x), grad_x = at::empty_like(x), mask = at::empty_like(x, torch::kByte);
  Tensor mean = scratch(kChannels, x), variance = scratch(kChannels, x),
         weight = scratch(kChannels, x).fill_(1), bias = scratch(kChannels, x).zero_(),
         grad_weight = scratch(kChannels, x), grad_bias = scratch(kChannels, x);
  kernels::CudaBatchNorm in;
  in.type = *number_of(x);
  in.rows = rows;
  in.channels = kChannels;
  in.x = x.const_data_ptr();
  in.weight = weight.const_data_ptr();
  in.bias = bias.const_data_ptr();
  in.relu = true;
  in.stream = stream_of(x);
  Tensor workspace = scratch(kernels::batch_norm_workspace(in), x);
  bench.measure("batch_norm_statistics", shape_of(x), bytes_of(x), [&] {
    kernels::batch_norm_statistics(in, mean.data_ptr<float>(), variance.data_ptr<float>(), {},
                                   workspace.data_ptr<float>());
  });
  auto apply = [&] {
    kernels::batch_norm_apply(in, mean.const_data_ptr<float>(), variance.const_data_ptr<float>(),
                              y.data_ptr(), mask.data_ptr<uint8_t>());
  };
  bench.measure("batch_norm_apply, ReLU", shape_of(x), 2 * bytes_of(x), apply);
  kernels::CudaBatchNormGradients g;
  g.grad_y = residual.const_data_ptr();
  g.mean = mean.const_data_ptr<float>();
  g.variance = variance.const_data_ptr<float>();
  g.grad_x = grad_x.data_ptr();
  g.grad_weight = grad_weight.data_ptr();
  g.grad_bias = grad_bias.data_ptr();
  bench.measure("batch_norm_backward", shape_of(x), 5 * bytes_of(x),
                [&] { kernels::batch_norm_backward(in, g, workspace.data_ptr<float>()); });
  in.residual = residual.const_data_ptr();
  bench.measure("batch_norm_apply, add, ReLU", shape_of(x), 3 * bytes_of(x) + x.numel() / 8, apply);
}

void bench_pool(KernelBench& bench) {
  constexpr int64_t kItems = 64, kPixels = 64, kSide = 112, kHalf = 56;
  Tensor x = bench.matrix(kItems * kSide * kSide, kPixels), y = bench.matrix(kItems * kHalf * kHalf, kPixels);
  Tensor taps = at::empty_like(y, torch::kByte), grad_x = at::empty_like(x);
  kernels::CudaPool in;
  in.type = *number_of(x);
  in.items = kItems;
  in.channels = kPixels;
  in.shape.kernel = 3;
  in.shape.stride = 2;
  in.shape.padding = 1;
  in.shape.height = in.shape.width = kSide;
  in.shape.out_height = in.shape.out_width = kHalf;
  in.stream = stream_of(x);
  bench.measure("max_pool 3x3", shape_of(x), bytes_of(x) + bytes_of(y) + taps.numel(),
                [&] { kernels::max_pool(in, x.const_data_ptr(), y.data_ptr(), taps.data_ptr<uint8_t>()); });
  bench.measure("max_pool_backward 3x3", shape_of(x), bytes_of(x) + bytes_of(y) + taps.numel(), [&] {
    kernels::max_pool_backward(in, y.const_data_ptr(), taps.const_data_ptr<uint8_t>(), grad_x.data_ptr());
  });
}

void bench_adamw(KernelBench& bench, int64_t rows) {
  Tensor gradient = bench.matrix(rows, kInner), weight = at::empty_like(gradient);
  Tensor state = at::zeros({3, gradient.numel()}, gradient.options().dtype(torch::kFloat));
  Tensor step = scratch(1, gradient).fill_(1), lr = scratch(1, gradient).fill_(1e-3);
  const bool narrow = gradient.scalar_type() != torch::kFloat32;
  auto array = [&](int64_t i) { return state[i].data_ptr<float>(); };
  kernels::CudaAdamW rule;
  rule.type = *number_of(gradient);
  rule.lr = lr.const_data_ptr<float>();
  rule.stream = stream_of(gradient);
  const std::vector<kernels::CudaAdamWParameter> all = {
      {gradient.const_data_ptr(), narrow ? weight.data_ptr() : nullptr, array(0), array(1), array(2),
       step.const_data_ptr<float>(), gradient.numel()}};
  bench.measure("adamw", fmt::format("{}", gradient.numel()), 28 * gradient.numel(),
                [&] { kernels::adamw(rule, all); });
}

}  // namespace

KernelSpeeds bench_kernels(torch::Device device, torch::ScalarType type, int64_t rows) {
  if (!kernels::have_cuda_kernels())
    throw ConfigError("bench kernels: this build has no CUDA kernels: it was made without nvcc.");
  c10::cuda::CUDAGuard guard(device);
  Tensor other = torch::zeros({kCacheBytes / 4}, torch::TensorOptions(device));
  KernelBench bench(torch::TensorOptions(device).dtype(type), [&](const std::function<void()>& run) {
    at::cuda::CUDAEvent begin(cudaEventDefault), end(cudaEventDefault);
    other.add_(1);
    begin.record();
    run();
    end.record();
    end.synchronize();
    return 1e-3 * static_cast<double>(begin.elapsed_time(end));
  });
  bench.copy(rows * kInner);
  bench_layer_norm(bench, rows);
  bench_activations(bench, rows);
  bench_pack(bench, rows);
  bench_loss(bench, rows);
  bench_batch_norm(bench, rows * kInner / kChannels);
  bench_pool(bench);
  bench_adamw(bench, rows);
  return bench.speeds;
}

}  // namespace yoke::compute::cuda
