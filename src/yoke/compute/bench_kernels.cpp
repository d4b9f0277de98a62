#include "yoke/compute/bench_kernels.h"

#include <fmt/format.h>

#include <algorithm>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/kernels/activation.h"
#include "yoke/kernels/batch_norm.h"
#include "yoke/kernels/crc32c.h"
#include "yoke/kernels/cross_entropy.h"
#include "yoke/kernels/optimizer_steps.h"

namespace yoke::compute {
namespace {

constexpr int kRuns = 9;
constexpr int64_t kWidth = 3072, kClasses = 10000, kChannels = 256;
constexpr int64_t kCacheBytes = 64 << 20;  // more than caches hold

float* data_of(const torch::Tensor& x) {
  return x.data_ptr<float>();
}

std::string shape_of(const torch::Tensor& x) {
  return fmt::format("{} x {}", x.size(0), x.size(1));
}

void bench_activations(KernelBench& bench, int64_t rows) {
  torch::Tensor x = bench.matrix(rows, kWidth), y = bench.matrix(rows, kWidth),
                z = bench.matrix(rows, kWidth);
  torch::Tensor bias = bench.matrix(1, kWidth), sums = bench.matrix(1, kWidth);
  const int64_t count = x.numel(), bytes = 4 * count;
  const std::string shape = shape_of(x);
  bench.measure("gelu", shape, 2 * bytes, [&] { kernels::gelu(data_of(x), data_of(y), count); });
  bench.measure("gelu_backward", shape, 3 * bytes,
                [&] { kernels::gelu_backward(data_of(x), data_of(y), data_of(z), count); });
  bench.measure("bias_gelu", shape, 3 * bytes,
                [&] { kernels::bias_gelu(data_of(x), data_of(bias), data_of(y), rows, kWidth); });
  bench.measure("add_bias, ReLU", shape, 2 * bytes,
                [&] { kernels::add_bias(data_of(y), data_of(bias), rows, kWidth, /*relu=*/true); });
  bench.measure("relu_backward", shape, 3 * bytes,
                [&] { kernels::relu_backward(data_of(x), data_of(y), data_of(z), count); });
  bench.measure("column_sums", shape, bytes,
                [&] { kernels::column_sums(data_of(x), data_of(sums), rows, kWidth, kWidth); });
  bench.measure("crc32c", shape, bytes, [&] { kernels::crc32c(x.data_ptr(), static_cast<size_t>(bytes)); });
}

void bench_loss(KernelBench& bench, int64_t rows) {
  torch::Tensor logits = bench.matrix(rows, kClasses), grad = bench.matrix(rows, kClasses);
  torch::Tensor target = torch::randint(kClasses, {rows}, torch::kLong);
  torch::Tensor log_sum = torch::empty({rows}), loss = torch::empty({rows});
  const int64_t bytes = 4 * logits.numel(), *targets = target.const_data_ptr<int64_t>();
  constexpr int64_t kIgnored = -100;
  bench.measure("cross_entropy", shape_of(logits), bytes, [&] {
    kernels::cross_entropy(data_of(logits), targets, kIgnored, rows, kClasses, data_of(log_sum),
                           data_of(loss));
  });
  bench.measure("cross_entropy_backward", shape_of(logits), 2 * bytes, [&] {
    kernels::cross_entropy_backward(data_of(logits), data_of(log_sum), targets, kIgnored, 1.0f, rows,
                                    kClasses, data_of(grad));
  });
}

void bench_batch_norm(KernelBench& bench, int64_t rows) {
  torch::Tensor x = bench.matrix(rows, kChannels), y = bench.matrix(rows, kChannels),
                grad_y = bench.matrix(rows, kChannels), grad_x = bench.matrix(rows, kChannels);
  torch::Tensor parts = bench.matrix(7, kChannels);
  auto part = [&](int64_t i) { return data_of(parts) + i * kChannels; };
  const int64_t bytes = 4 * x.numel();
  kernels::BatchNormInput in{data_of(x), nullptr, rows,  kChannels,    kChannels,
                             part(0),    part(1), 1e-5f, /*relu=*/true};
  bench.measure("batch_norm, ReLU", shape_of(x), 3 * bytes,
                [&] { kernels::batch_norm(in, data_of(y), part(2), part(3), part(4)); });
  kernels::BatchNormGradients g{data_of(grad_y), data_of(y), part(2), part(3),
                                data_of(grad_x), nullptr,    part(5), part(6)};
  bench.measure("batch_norm_backward", shape_of(x), 7 * bytes, [&] { kernels::batch_norm_backward(in, g); });
}

void bench_optimizers(KernelBench& bench, int64_t rows) {
  torch::Tensor all = bench.matrix(4, rows * kWidth).abs();
  const int64_t count = all.size(1);
  auto array = [&](int64_t i) { return data_of(all) + i * count; };
  bench.measure("sgd, momentum", fmt::format("{}", count), 20 * count, [&] {
    kernels::sgd<float>({.lr = 1e-3, .momentum = 0.9}, 1.0, array(0), array(1), array(1), array(2), count);
  });
  bench.measure("adamw", fmt::format("{}", count), 28 * count, [&] {
    kernels::adamw<float>({.lr = 1e-3}, 1.0, array(0), array(1), array(1), array(2), array(3), count);
  });
}

KernelSpeeds bench_on_cpu(int64_t rows) {
  torch::Tensor other = torch::zeros({kCacheBytes / 4});
  KernelBench bench(torch::kFloat32, [&](const std::function<void()>& run) {
    other.add_(1);
    Stopwatch watch;
    run();
    return watch.seconds();
  });
  bench.copy(rows * kWidth);
  bench_activations(bench, rows);
  bench_loss(bench, rows);
  bench_batch_norm(bench, rows * kWidth / kChannels);
  bench_optimizers(bench, rows);
  return bench.speeds;
}

}  // namespace

torch::Tensor KernelBench::matrix(int64_t rows, int64_t columns) const {
  return torch::rand({rows, columns}, options_).mul_(2).sub_(1);
}

void KernelBench::measure(const std::string& name, const std::string& shape, int64_t bytes,
                          const std::function<void()>& run) {
  run();
  std::vector<double> seconds;
  for (int i = 0; i < kRuns; ++i) seconds.push_back(clock_(run));
  std::nth_element(seconds.begin(), seconds.begin() + kRuns / 2, seconds.end());
  speeds.kernels.push_back({name, shape, bytes, seconds[kRuns / 2]});
}

void KernelBench::copy(int64_t elements) {
  torch::Tensor from = matrix(1, elements), to = torch::empty_like(from);
  measure("copy", "", 2 * static_cast<int64_t>(from.nbytes()), [&] { to.copy_(from); });
  speeds.copy_bytes_per_s = static_cast<double>(speeds.kernels.back().bytes) / speeds.kernels.back().seconds;
  speeds.kernels.pop_back();
}

KernelSpeeds bench_kernels(torch::Device device, torch::ScalarType type, int64_t rows) {
  torch::NoGradGuard no_grad;
  if (device.is_cuda()) return cuda::bench_kernels(device, type, rows);
  if (type != torch::kFloat32)
    throw ConfigError("bench kernels: the kernels for the CPU compute in fp32. Use --precision fp32.");
  return bench_on_cpu(rows);
}

}  // namespace yoke::compute
