// LAMB (You et al. 2020, algorithm 2 with phi(x) = x): AdamW, where the step of a layer is as long as its
// weights are:
//   m, v as in Adam,  r = m' / (sqrt(v') + eps) + decay w,  w <- w - lr |w| / |r| r.
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/stack.h>

#include <utility>

#include "yoke/optim/layerwise.h"
#include "yoke/optim/optimizers.h"

namespace yoke::optim {
namespace {

using torch::Tensor;

class Lamb final : public LayerwiseOptimizer {
 public:
  Lamb(const OptimizerOptions& options, std::vector<NamedTensor> parameters)
      : LayerwiseOptimizer(options, std::move(parameters)),
        mean_(list().zeros()),
        mean_square_(list().zeros()),
        steps_(list()) {}

  std::vector<NamedTensor> state() override {
    std::vector<NamedTensor> state = {{"step", steps_.all()}};
    list().append_masters(state);
    list().append(state, "exp_avg", mean_);
    list().append(state, "exp_avg_sq", mean_square_);
    return state;
  }

 protected:
  Tensors directions(const UpdateGroup& group) override {
    steps_.advance(group.indices);
    Tensors mean = select(mean_, group.indices), mean_square = select(mean_square_, group.indices);
    at::_foreach_lerp_(mean, group.gradients, 1 - options().beta1);
    at::_foreach_mul_(mean_square, options().beta2);
    at::_foreach_addcmul_(mean_square, group.gradients, group.gradients, 1 - options().beta2);
    Tensors root = at::_foreach_div(mean_square, correction(group, options().beta2));
    at::_foreach_sqrt_(root);
    at::_foreach_add_(root, options().eps);
    Tensors direction = at::_foreach_div(mean, correction(group, options().beta1));
    at::_foreach_div_(direction, root);
    if (group.settings.weight_decay != 0)
      at::_foreach_add_(direction, group.targets, group.settings.weight_decay);
    return direction;
  }

  Tensor ratio(const Tensor& weights, const Tensor& directions, const ParameterSettings&) const override {
    return weights / directions;
  }

  void move(const UpdateGroup& group, Tensors directions, const Tensors& ratios) override {
    const Tensor lr = rate(group.settings, ratios[0].scalar_type());
    at::_foreach_mul_(directions, (at::stack(ratios) * lr).unbind(0));
    at::_foreach_sub_(group.targets, directions);
  }

 private:
  // 1 - beta^steps, as a scalar for each tensor.
  Tensors correction(const UpdateGroup& group, double beta) const {
    const Tensor steps = at::stack(steps_.select(group.indices)).to(torch::kDouble);
    return (1 - at::pow(beta, steps)).to(group.targets[0].scalar_type()).unbind(0);
  }

  Tensors mean_, mean_square_;
  StepCounters steps_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lamb(const OptimizerOptions& options, std::vector<NamedTensor> parameters) {
  return std::make_unique<Lamb>(options, std::move(parameters));
}

}  // namespace yoke::optim
