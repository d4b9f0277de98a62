#include "yoke/base/error.h"
#include "yoke/compute/image_kernels.h"

namespace yoke::compute::cuda {

using torch::Tensor;

bool can_batch_norm(const torch::nn::BatchNorm2dImpl&, const Tensor&, const Tensor&) {
  return false;
}

Tensor batch_norm(torch::nn::BatchNorm2dImpl&, const Tensor&, const Tensor&, bool, double) {
  YOKE_CHECK(false, "batch_norm without CUDA");
}

bool can_max_pool(const Tensor&, const kernels::PoolShape&) {
  return false;
}

Tensor max_pool(const Tensor&, const kernels::PoolShape&, bool) {
  YOKE_CHECK(false, "max_pool without CUDA");
}

bool can_conv_relu(const Tensor&, const Tensor&, const Tensor&) {
  return false;
}

Tensor conv_relu(const Tensor&, const Tensor&, const Tensor&, const ConvShape&) {
  YOKE_CHECK(false, "conv_relu without CUDA");
}

Tensor conv_relu_max_pool(const Tensor&, const Tensor&, const Tensor&, const ConvShape&,
                          const kernels::PoolShape&) {
  YOKE_CHECK(false, "conv_relu_max_pool without CUDA");
}

}  // namespace yoke::compute::cuda
