// Lion (Chen et al. 2023): every weight moves by the learning rate, in the direction of
//   sign(beta1 m + (1 - beta1) g),  w <- (1 - lr decay) w - lr sign,  m <- beta2 m + (1 - beta2) g.
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sign.h>
#include <ATen/ops/_foreach_sub.h>

#include <utility>

#include "yoke/base/error.h"
#include "yoke/optim/first_order.h"
#include "yoke/optim/optimizers.h"

namespace yoke::optim {
namespace {

using torch::Tensor;

class Lion final : public FirstOrderOptimizer {
 public:
  Lion(const OptimizerOptions& options, std::vector<NamedTensor> parameters)
      : FirstOrderOptimizer(options, std::move(parameters)), options_(options), momentum_(list().zeros()) {}

  std::vector<NamedTensor> state() override {
    std::vector<NamedTensor> state;
    list().append_masters(state);
    list().append(state, "exp_avg", momentum_);
    return state;
  }

 protected:
  void update_dense(const UpdateGroup& group) override {
    std::vector<Tensor> momentum = select(momentum_, group.indices);
    std::vector<Tensor> steps = at::_foreach_lerp(momentum, group.gradients, 1 - options_.beta1);
    at::_foreach_sign_(steps);
    const Tensor lr = rate(group.settings, group.targets[0].scalar_type());
    at::_foreach_mul_(steps, lr);
    if (group.settings.weight_decay != 0)
      at::_foreach_mul_(group.targets, 1 - lr * group.settings.weight_decay);
    at::_foreach_sub_(group.targets, steps);
    at::_foreach_lerp_(momentum, group.gradients, 1 - options_.beta2);
  }

  void update_sparse(const SparseUpdate& update) override {
    throw ConfigError(
        "train.optimizer = lion: parameter '{}' has sparse gradients, but Lion moves every weight. Hint: "
        "adagrad or sgd",
        list().name(update.index));
  }

 private:
  OptimizerOptions options_;
  std::vector<Tensor> momentum_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lion(const OptimizerOptions& options, std::vector<NamedTensor> parameters) {
  return std::make_unique<Lion>(options, std::move(parameters));
}

}  // namespace yoke::optim
