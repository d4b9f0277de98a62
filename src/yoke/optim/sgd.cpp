// torch.optim.SGD without dampening.
#include <ATen/ops/_fused_sgd.h>

#include <utility>

#include "yoke/base/error.h"
#include "yoke/optim/first_order.h"
#include "yoke/optim/optimizers.h"

namespace yoke::optim {
namespace {

class Sgd final : public FirstOrderOptimizer {
 public:
  Sgd(const OptimizerOptions& options, std::vector<NamedTensor> parameters)
      : FirstOrderOptimizer(options, std::move(parameters)), options_(options) {
    // A first step on a velocity of zeros makes it equal to the gradient: no special case for that step.
    if (options_.momentum != 0) velocity_ = list().zeros();
  }

  std::vector<NamedTensor> state() override {
    std::vector<NamedTensor> state;
    list().append_masters(state);
    if (!velocity_.empty()) list().append(state, "momentum", velocity_);
    return state;
  }

 protected:
  bool can_follow_scaled_update() const override { return true; }

  void update_dense(const UpdateGroup& group) override {
    std::vector<torch::Tensor> velocity;
    if (!velocity_.empty()) velocity = select(velocity_, group.indices);
    with_lr(group.settings, [&](const auto& lr) {
      at::_fused_sgd_(
          group.targets, group.gradients, velocity, group.settings.weight_decay, options_.momentum, lr,
          /*dampening=*/0, options_.nesterov, /*maximize=*/false, /*is_first_step=*/false, divisor(), skip());
    });
  }

  void update_sparse(const SparseUpdate& update) override {
    // Momentum and decay touch every row, so nothing is saved by staying sparse.
    if (options_.momentum != 0 || update.settings.weight_decay != 0) {
      update_dense({{update.index}, {update.target}, {update.gradient.to_dense()}, update.settings});
    } else {
      update.target.add_(update.gradient, -lr() * update.settings.lr);
    }
  }

 private:
  OptimizerOptions options_;
  std::vector<torch::Tensor> velocity_;
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(const OptimizerOptions& options, std::vector<NamedTensor> parameters) {
  if (options.nesterov && options.momentum == 0) {
    throw ConfigError("train.nesterov = true needs momentum: set train.momentum above 0 (0.9 is usual)");
  }
  return std::make_unique<Sgd>(options, std::move(parameters));
}

}  // namespace yoke::optim
