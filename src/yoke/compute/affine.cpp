#include "yoke/compute/affine.h"

#include <torch/csrc/autograd/custom_function.h>

#include "yoke/compute/precision.h"
#include "yoke/compute/token_kernels.h"

namespace yoke::compute {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// One read of x at full bandwidth, where LibTorch's column sum on CUDA takes three times as long.
torch::Tensor sum_by_product(const torch::Tensor& x) {
  return at::mm(torch::ones({1, x.size(0)}, x.options()), x).view({-1});
}

struct Affine : public torch::autograd::Function<Affine> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x, const torch::Tensor& weight,
                               const torch::Tensor& bias) {
    context->save_for_backward({x, weight});
    std::vector<int64_t> shape = x.sizes().vec();
    shape.back() = weight.size(1);
    return at::addmm(bias, x.reshape({-1, x.size(-1)}), weight).view(shape);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    variable_list saved = context->get_saved_variables();
    const torch::Tensor& x = saved[0];
    torch::Tensor gradient = gradients[0].reshape({-1, gradients[0].size(-1)});
    torch::Tensor of_x = at::mm(gradient, saved[1].t()).view(x.sizes());
    torch::Tensor of_weight = at::mm(x.reshape({-1, x.size(-1)}).t(), gradient);
    torch::Tensor of_bias =
        cuda::can_sum_rows(gradient) ? cuda::sum_rows(gradient) : sum_by_product(gradient);
    return {of_x, of_weight, of_bias};
  }
};

}  // namespace

torch::Tensor affine(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias) {
  return Affine::apply(as_autocast(x), as_autocast(weight), as_autocast(bias));
}

}  // namespace yoke::compute
