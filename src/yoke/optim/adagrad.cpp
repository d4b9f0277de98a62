// torch.optim.Adagrad (Duchi, Hazan & Singer 2011) without decay of the learning rate.
#include <ATen/ops/_fused_adagrad.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>

#include <utility>

#include "yoke/base/error.h"
#include "yoke/optim/first_order.h"
#include "yoke/optim/optimizers.h"

namespace yoke::optim {
namespace {

class Adagrad final : public FirstOrderOptimizer {
 public:
  Adagrad(const OptimizerOptions& options, std::vector<NamedTensor> parameters)
      : FirstOrderOptimizer(options, std::move(parameters)),
        options_(options),
        sum_(list().zeros()),
        steps_(list()) {
    options_.eps = effective_eps(options);
  }

  std::vector<NamedTensor> state() override {
    std::vector<NamedTensor> state = {{"step", steps_.all()}};
    list().append_masters(state);
    list().append(state, "sum", sum_);
    return state;
  }

 protected:
  void update_dense(const UpdateGroup& group) override {
    steps_.advance(group.indices);
    auto sum = select(sum_, group.indices);
    auto steps = steps_.select(group.indices);
    with_lr(group.settings, [&](const auto& lr) {
      at::_fused_adagrad_(group.targets, group.gradients, sum, steps, lr, /*lr_decay=*/0,
                          group.settings.weight_decay, options_.eps, /*maximize=*/false);
    });
  }

  // Only the rows in the gradient move: their squares were the only ones to grow.
  void update_sparse(const SparseUpdate& update) override {
    if (update.settings.weight_decay != 0) {
      throw ConfigError(
          "train.weight_decay = {}: parameter '{}' has sparse gradients, which do not support it. Hint: "
          "weight_decay = 0",
          update.settings.weight_decay, list().name(update.index));
    }
    steps_.advance({update.index});
    torch::Tensor& sum = sum_[update.index];
    const torch::Tensor& gradient = update.gradient;
    auto like_gradient = [&](const torch::Tensor& values) {
      return at::_sparse_coo_tensor_unsafe(gradient.indices(), values, gradient.sizes())._coalesced_(true);
    };
    sum.add_(like_gradient(gradient.values().square()));
    torch::Tensor root = sum.sparse_mask(gradient).values().sqrt().add_(options_.eps);
    update.target.add_(like_gradient(gradient.values() / root), -lr() * update.settings.lr);
  }

 private:
  OptimizerOptions options_;
  std::vector<torch::Tensor> sum_;
  StepCounters steps_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adagrad(const OptimizerOptions& options,
                                        std::vector<NamedTensor> parameters) {
  return std::make_unique<Adagrad>(options, std::move(parameters));
}

}  // namespace yoke::optim
