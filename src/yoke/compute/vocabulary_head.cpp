#include "yoke/compute/vocabulary_head.h"

#include <torch/csrc/autograd/custom_function.h>

#include <limits>

#include "yoke/compute/interception.h"
#include "yoke/compute/layers.h"
#include "yoke/compute/precision.h"
#include "yoke/compute/product.h"

namespace yoke::compute {
namespace {

constexpr int64_t kMultiple = 64;

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A custom function, because autograd would copy the whole gradient to undo the filling of the last columns.
struct PaddedHead : public torch::autograd::Function<PaddedHead> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x,
                               const torch::Tensor& weight) {
    int64_t vocabulary = weight.size(0);
    int64_t surplus = (kMultiple - vocabulary % kMultiple) % kMultiple;
    torch::Tensor padded = at::constant_pad_nd(weight, {0, 0, 0, surplus});
    torch::Tensor rows = x.reshape({-1, x.size(-1)});
    torch::Tensor logits = product(rows, padded.t());
    logits.narrow(1, vocabulary, surplus).fill_(-std::numeric_limits<double>::infinity());
    context->save_for_backward({rows, padded});
    context->saved_data["vocabulary"] = vocabulary;
    context->saved_data["shape"] = x.sizes().vec();
    std::vector<int64_t> shape = x.sizes().vec();
    shape.back() = vocabulary + surplus;
    return logits.view(shape);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    variable_list saved = context->get_saved_variables();
    int64_t vocabulary = context->saved_data["vocabulary"].toInt();
    torch::Tensor gradient = gradients[0].reshape({-1, gradients[0].size(-1)});
    torch::Tensor of_x = product(gradient, saved[1]).view(context->saved_data["shape"].toIntVector());
    torch::Tensor of_weight = product(gradient.t(), saved[0]).narrow(0, 0, vocabulary);
    return {of_x, of_weight};
  }
};

}  // namespace

torch::Tensor vocabulary_logits(const torch::Tensor& x, const torch::Tensor& weight) {
  bool pad = x.is_cuda() && weight.size(0) % kMultiple != 0 && !is_intercepted(weight);
  if (!pad) return compute::linear(x, weight, {});
  return PaddedHead::apply(as_autocast(x), as_autocast(weight));
}

torch::Tensor without_padding(const torch::Tensor& logits, int64_t vocabulary) {
  return logits.narrow(-1, 0, vocabulary);
}

}  // namespace yoke::compute
