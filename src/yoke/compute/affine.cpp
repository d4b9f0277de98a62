#include "yoke/compute/affine.h"

#include <torch/csrc/autograd/custom_function.h>

#include "yoke/compute/kept_sums.h"
#include "yoke/compute/precision.h"
#include "yoke/compute/product.h"
#include "yoke/compute/token_kernels.h"

namespace yoke::compute {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// One read of x at full bandwidth; LibTorch's column sum on CUDA takes three times as long.
torch::Tensor sum_by_product(const torch::Tensor& x) {
  return at::mm(torch::ones({1, x.size(0)}, x.options()), x).view({-1});
}

struct Affine : public torch::autograd::Function<Affine> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x, const torch::Tensor& weight,
                               const torch::Tensor& bias, const std::optional<torch::Tensor>& added) {
    context->save_for_backward({x, weight});
    context->saved_data["added"] = added.has_value();
    std::vector<int64_t> shape = x.sizes().vec();
    shape.back() = weight.size(1);
    torch::Tensor residual = added ? added->reshape({-1, weight.size(1)}) : torch::Tensor();
    return product_plus(x.reshape({-1, x.size(-1)}), weight, bias, residual).view(shape);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    variable_list saved = context->get_saved_variables();
    const torch::Tensor& x = saved[0];
    torch::Tensor gradient = gradients[0].reshape({-1, gradients[0].size(-1)});
    torch::Tensor of_x = product(gradient, saved[1].t()).view(x.sizes());
    torch::Tensor of_weight = product(x.reshape({-1, x.size(-1)}).t(), gradient);
    torch::Tensor of_bias = kept_sums(gradients[0]);
    if (!of_bias.defined())
      of_bias = cuda::can_sum_rows(gradient) ? cuda::sum_rows(gradient) : sum_by_product(gradient);
    return {of_x, of_weight, of_bias, context->saved_data["added"].toBool() ? gradients[0] : torch::Tensor()};
  }
};

}  // namespace

torch::Tensor affine(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                     const torch::Tensor& added) {
  return Affine::apply(as_autocast(x), as_autocast(weight), as_autocast(bias),
                       added.defined() ? std::optional(added) : std::nullopt);
}

}  // namespace yoke::compute
