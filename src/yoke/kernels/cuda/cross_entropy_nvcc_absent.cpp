#include "yoke/base/error.h"
#include "yoke/kernels/cuda/cross_entropy.h"

namespace yoke::kernels {

void cross_entropy(const CudaCrossEntropy&) {
  YOKE_CHECK(false, "CUDA kernels are not in this build");
}

void scale_unless_one(CudaNumber, void*, int64_t, const float*, void*) {
  YOKE_CHECK(false, "CUDA kernels are not in this build");
}

}  // namespace yoke::kernels
