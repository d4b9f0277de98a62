#include "yoke/engine/machine_speed.h"

#include <algorithm>
#include <functional>

#include "yoke/base/clock.h"
#include "yoke/compute/device.h"

namespace yoke::engine {
namespace {

torch::ScalarType element_type(Precision precision) {
  if (precision == Precision::kBf16) return torch::kBFloat16;
  if (precision == Precision::kFp16) return torch::kHalf;
  return torch::kFloat;
}

double best_rate(double operations, torch::Device device, const std::function<void()>& run) {
  constexpr double kSeconds = 0.25;
  torch::NoGradGuard no_grad;
  run();
  compute::synchronize(device);
  double best = 0;
  Stopwatch total;
  do {
    Stopwatch watch;
    run();
    compute::synchronize(device);
    best = std::max(best, operations / watch.seconds());
  } while (total.seconds() < kSeconds);
  return best;
}

}  // namespace

double matmul_flops(torch::Device device, Precision precision) {
  // Large enough to be compute-bound, small enough for a slow BLAS to finish.
  const int64_t size = device.is_cuda() ? 8192 : 768;
  auto options = torch::TensorOptions().device(device);
  torch::Tensor a = torch::randn({size, size}, options).to(element_type(precision));
  torch::Tensor b = torch::randn({size, size}, options).to(element_type(precision));
  torch::Tensor out = torch::empty_like(a);
  auto n = static_cast<double>(size);
  return best_rate(2 * n * n * n, device, [&] { at::mm_out(out, a, b); });
}

double convolution_flops(torch::Device device, Precision precision) {
  const int64_t batch = device.is_cuda() ? 256 : 4;
  auto options = torch::TensorOptions().device(device);
  torch::Tensor x = torch::randn({batch, 64, 56, 56}, options).to(element_type(precision));
  torch::Tensor w = torch::randn({64, 64, 3, 3}, options).to(element_type(precision));
  double operations = 2.0 * static_cast<double>(batch) * 64 * 56 * 56 * 64 * 9;
  return best_rate(operations, device, [&] { at::conv2d(x, w, {}, 1, 1); });
}

double copy_bandwidth(torch::Device device) {
  const int64_t bytes = int64_t{1} << (device.is_cuda() ? 30 : 27);
  auto options = torch::TensorOptions().device(device).dtype(torch::kUInt8);
  torch::Tensor from = torch::ones({bytes}, options), to = torch::zeros_like(from);
  return best_rate(2 * static_cast<double>(bytes), device, [&] { to.copy_(from); });
}

}  // namespace yoke::engine
