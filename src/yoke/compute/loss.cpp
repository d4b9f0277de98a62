// Cross entropy in two passes over the logits: the sums of exponentials, and (in backward) the gradient.
#include <torch/csrc/autograd/custom_function.h>

#include "yoke/compute/fast_path.h"
#include "yoke/compute/interception.h"
#include "yoke/compute/layers.h"
#include "yoke/compute/parallel.h"
#include "yoke/kernels/cross_entropy.h"

namespace yoke::compute {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kIgnored = -100;  // torch::nn::CrossEntropyLoss's ignore_index

// The number of targets that count. Throws c10::IndexError as LibTorch does.
int64_t checked_targets(const Tensor& target, int64_t classes) {
  const int64_t* values = target.const_data_ptr<int64_t>();
  int64_t counted = 0;
  for (int64_t i = 0; i < target.numel(); ++i) {
    if (values[i] == kIgnored) continue;
    TORCH_CHECK_INDEX(values[i] >= 0 && values[i] < classes, "cross_entropy: target ", values[i], " at ", i,
                      " is out of bounds: there are ", classes, " classes");
    ++counted;
  }
  return counted;
}

struct CrossEntropyFunction : torch::autograd::Function<CrossEntropyFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& logits, const Tensor& target) {
    int64_t rows = logits.size(0), classes = logits.size(1);
    int64_t counted = checked_targets(target, classes);
    Tensor log_sum = at::empty({rows}, logits.options());
    Tensor losses = at::empty({rows}, logits.options());
    parallel_for(rows, logits.numel(), [&](int64_t begin, int64_t end) {
      kernels::cross_entropy(logits.const_data_ptr<float>() + begin * classes,
                             target.const_data_ptr<int64_t>() + begin, kIgnored, end - begin, classes,
                             log_sum.data_ptr<float>() + begin, losses.data_ptr<float>() + begin);
    });
    double sum = 0;
    for (int64_t r = 0; r < rows; ++r) sum += losses.const_data_ptr<float>()[r];
    ctx->save_for_backward({logits, target, log_sum});
    ctx->saved_data["counted"] = counted;
    return at::full({}, sum / static_cast<double>(counted), logits.options());
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    require_first_derivative("cross_entropy");
    variable_list saved = ctx->get_saved_variables();
    const Tensor &logits = saved[0], &target = saved[1], &log_sum = saved[2];
    int64_t classes = logits.size(1);
    float scale = grads[0].item<float>() / static_cast<float>(ctx->saved_data["counted"].toInt());
    Tensor grad = at::empty_like(logits);
    parallel_for(logits.size(0), logits.numel(), [&](int64_t begin, int64_t end) {
      kernels::cross_entropy_backward(logits.const_data_ptr<float>() + begin * classes,
                                      log_sum.const_data_ptr<float>() + begin,
                                      target.const_data_ptr<int64_t>() + begin, kIgnored, scale, end - begin,
                                      classes, grad.data_ptr<float>() + begin * classes);
    });
    return {grad, Tensor()};
  }
};

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& target) {
  Tensor rows = logits.reshape({-1, logits.size(-1)});
  Tensor flat = target.reshape({-1});
  if (are_sliced_logits(rows)) return at::cross_entropy_loss(rows, flat);
  bool fast = plain_float(rows) && rows.is_contiguous() && flat.device().is_cpu() &&
              flat.scalar_type() == at::kLong && flat.is_contiguous() && flat.numel() == rows.size(0) &&
              rows.numel() > 0;
  return fast ? CrossEntropyFunction::apply(rows, flat) : at::cross_entropy_loss(rows, flat);
}

}  // namespace yoke::compute
