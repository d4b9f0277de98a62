#include "yoke/compute/product.h"

namespace yoke::compute {

using torch::Tensor;

Tensor product(const Tensor& left, const Tensor& right) {
  return at::mm(left, right);
}

Tensor product_plus(const Tensor& left, const Tensor& right, const Tensor& bias, const Tensor& added) {
  Tensor sum = at::addmm(bias, left, right);
  return added.defined() ? sum.add_(added) : sum;
}

GeluOfProduct product_gelu(const Tensor& left, const Tensor& right, const Tensor& bias) {
  Tensor z = at::addmm(bias, left, right);
  return {z, at::gelu(z, "tanh")};
}

Tensor product_gelu_slope(const Tensor&, const Tensor&, const Tensor&) {
  return {};
}

}  // namespace yoke::compute
