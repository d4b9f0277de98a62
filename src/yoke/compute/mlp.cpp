#include "yoke/compute/mlp.h"

#include "yoke/compute/deferred_gradients.h"
#include "yoke/compute/interception.h"
#include "yoke/compute/layers.h"

namespace yoke::compute {
namespace {

bool are_plain(const torch::Tensor& up, const torch::Tensor& down) {
  return !is_intercepted(up) && !is_intercepted(down) && !takes_gradients(up) && !takes_gradients(down);
}

}  // namespace

torch::Tensor mlp_add(const torch::Tensor& x, const MlpWeights& weights, const torch::Tensor& added) {
  if (are_plain(weights.up, weights.down) && cuda::can_mlp(x, weights, added))
    return cuda::mlp(x, weights, added);
  torch::Tensor inner = linear_transposed_gelu(x, weights.up, weights.up_bias);
  return linear_transposed_add(inner, weights.down, weights.down_bias, added);
}

}  // namespace yoke::compute
