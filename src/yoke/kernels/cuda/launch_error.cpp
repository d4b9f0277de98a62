#include "yoke/kernels/cuda/launch_error.h"

#include "yoke/base/error.h"

namespace yoke::kernels {

void throw_launch_error(const char* kernel, const char* reason) {
  throw Error(ExitCode::kInternal, fmt::format("CUDA kernel {}: {}", kernel, reason));
}

}  // namespace yoke::kernels
