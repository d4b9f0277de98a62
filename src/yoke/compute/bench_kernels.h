// Speed of Yoke's own streaming kernels, beside a plain copy on the same device: how close each is to the
// memory bandwidth.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace yoke::compute {

struct KernelSpeed {
  std::string name;
  std::string shape;
  int64_t bytes = 0;   // the least that has to be read and written
  double seconds = 0;  // median of several runs with cold caches
};

struct KernelSpeeds {
  double copy_bytes_per_s = 0;  // read and written
  std::vector<KernelSpeed> kernels;
};

// `rows`: of the matrices; the other sizes are those of GPT-2 and ResNet-50. On the CPU one thread, fp32.
// Throws ConfigError for a type that the kernels of this device do not have, or a build without them.
KernelSpeeds bench_kernels(torch::Device device, torch::ScalarType type, int64_t rows);

// ---- for implementations ----

class KernelBench {
 public:
  // Seconds of one call of `run`, with cold caches.
  using Clock = std::function<double(const std::function<void()>& run)>;
  KernelBench(torch::TensorOptions options, Clock clock) : options_(options), clock_(std::move(clock)) {}

  void copy(int64_t elements);
  void measure(const std::string& name, const std::string& shape, int64_t bytes,
               const std::function<void()>& run);
  // Random, between -1 and 1.
  torch::Tensor matrix(int64_t rows, int64_t columns) const;

  KernelSpeeds speeds;

 private:
  torch::TensorOptions options_;
  Clock clock_;
};

namespace cuda {
KernelSpeeds bench_kernels(torch::Device device, torch::ScalarType type, int64_t rows);
}

}  // namespace yoke::compute
