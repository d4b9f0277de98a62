#include "yoke/base/error.h"
#include "yoke/kernels/cuda/batch_norm.h"
#include "yoke/kernels/cuda/bias_relu.h"
#include "yoke/kernels/cuda/pool.h"

// Nobody calls these: have_cuda_kernels() says so first.
namespace yoke::kernels {
namespace {

[[noreturn]] void absent() {
  YOKE_CHECK(false, "CUDA kernels are not in this build");
}

}  // namespace

int64_t batch_norm_workspace(const CudaBatchNorm&) {
  absent();
}

void batch_norm_statistics(const CudaBatchNorm&, float*, float*, const CudaRunningStatistics&, float*) {
  absent();
}

void batch_norm_apply(const CudaBatchNorm&, const float*, const float*, void*, uint8_t*) {
  absent();
}

void batch_norm_backward(const CudaBatchNorm&, const CudaBatchNormGradients&, float*) {
  absent();
}

void max_pool(const CudaPool&, const void*, void*, uint8_t*) {
  absent();
}

void max_pool_backward(const CudaPool&, const void*, const uint8_t*, void*) {
  absent();
}

void add_bias_relu(const CudaBiasRelu&, void*, const void*) {
  absent();
}

int64_t bias_relu_workspace(const CudaBiasRelu&) {
  absent();
}

void bias_relu_backward(const CudaBiasRelu&, const void*, const void*, void*, void*, float*) {
  absent();
}

}  // namespace yoke::kernels
