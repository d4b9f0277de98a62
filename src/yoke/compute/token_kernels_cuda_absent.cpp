#include "yoke/base/error.h"
#include "yoke/compute/token_kernels.h"

namespace yoke::compute::cuda {

using torch::Tensor;

bool can_add_layer_norm(const Tensor&, const Tensor&, const Tensor&, const Tensor&) {
  return false;
}

Normed add_layer_norm(const Tensor&, const Tensor&, const Tensor&, const Tensor&, double) {
  YOKE_CHECK(false, "add_layer_norm without CUDA");
}

bool can_affine_gelu(const Tensor&, const Tensor&, const Tensor&) {
  return false;
}

Tensor affine_gelu(const Tensor&, const Tensor&, const Tensor&) {
  YOKE_CHECK(false, "affine_gelu without CUDA");
}

bool can_mlp(const Tensor&, const MlpWeights&, const Tensor&) {
  return false;
}

Tensor mlp(const Tensor&, const MlpWeights&, const Tensor&) {
  YOKE_CHECK(false, "mlp without CUDA");
}

bool can_sum_rows(const Tensor&) {
  return false;
}

Tensor sum_rows(const Tensor&) {
  YOKE_CHECK(false, "sum_rows without CUDA");
}

bool can_split_heads(const Tensor&, int64_t) {
  return false;
}

std::array<Tensor, 3> split_heads(const Tensor&, int64_t) {
  YOKE_CHECK(false, "split_heads without CUDA");
}

bool can_affine_heads(const Tensor&, const Tensor&, const Tensor&, int64_t) {
  return false;
}

std::array<Tensor, 3> affine_heads(const Tensor&, const Tensor&, const Tensor&, int64_t) {
  YOKE_CHECK(false, "affine_heads without CUDA");
}

}  // namespace yoke::compute::cuda
