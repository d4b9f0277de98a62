#include "yoke/kernels/cuda/have_kernels.h"

namespace yoke::kernels {

bool have_cuda_kernels() {
  return true;
}

}  // namespace yoke::kernels
