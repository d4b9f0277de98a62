#include "yoke/base/error.h"
#include "yoke/compute/bench_kernels.h"

namespace yoke::compute::cuda {

KernelSpeeds bench_kernels(torch::Device, torch::ScalarType, int64_t) {
  throw ConfigError("bench kernels: this build has no CUDA kernels. Configure with -DYOKE_CUDA=ON.");
}

}  // namespace yoke::compute::cuda
