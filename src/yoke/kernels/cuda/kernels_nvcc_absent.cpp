#include "yoke/base/error.h"
#include "yoke/kernels/cuda/activation.h"
#include "yoke/kernels/cuda/adamw.h"
#include "yoke/kernels/cuda/batch_norm.h"
#include "yoke/kernels/cuda/layer_norm.h"
#include "yoke/kernels/cuda/pack.h"
#include "yoke/kernels/cuda/pool.h"

// Never called: have_cuda_kernels() is false.
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

void add_bias_relu(const CudaActivation&, void*, const void*) {
  absent();
}
int64_t activation_workspace(const CudaActivation&) {
  absent();
}
void column_sums(const CudaActivation&, const void*, void*, float*) {
  absent();
}
void relu_backward(const CudaActivation&, const void*, const void*, void*, void*, float*) {
  absent();
}
void gelu_backward(const CudaActivation&, const void*, const void*, void*, void*, float*) {
  absent();
}

void layer_norm(const CudaLayerNorm&, const void*, const void*, void*, void*, float*, float*) {
  absent();
}
int64_t layer_norm_workspace(const CudaLayerNorm&) {
  absent();
}
void layer_norm_backward(const CudaLayerNorm&, const void*, const float*, const float*, const void*,
                         const void*, void*, void*, void*, void*, float*) {
  absent();
}

int64_t pack_workspace(const CudaPacking&) {
  absent();
}
void pack_heads(const CudaPacking&, const CudaHeads (&)[3], void*, void*, float*) {
  absent();
}

void adamw(const CudaAdamW&, const std::vector<CudaAdamWParameter>&) {
  absent();
}

}  // namespace yoke::kernels
