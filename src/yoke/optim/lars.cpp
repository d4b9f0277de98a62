// LARS (You, Gitman & Ginsburg 2017): SGD with momentum, where the length of a layer's step follows from the
// norm of its weights. The learning rate stays outside of the momentum, as in torch.optim.SGD and in LARC:
//   d = trust |w| / (|g| + decay |w| + eps) (g + decay w),  v <- momentum v + d,  w <- w - lr v.
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_fused_sgd.h>

#include <utility>

#include "yoke/base/error.h"
#include "yoke/optim/layerwise.h"
#include "yoke/optim/optimizers.h"

namespace yoke::optim {
namespace {

using torch::Tensor;

class Lars final : public LayerwiseOptimizer {
 public:
  Lars(const OptimizerOptions& options, std::vector<NamedTensor> parameters)
      : LayerwiseOptimizer(options, std::move(parameters)) {
    if (options.momentum != 0) velocity_ = list().zeros();
  }

  std::vector<NamedTensor> state() override {
    std::vector<NamedTensor> state;
    list().append_masters(state);
    if (!velocity_.empty()) list().append(state, "momentum", velocity_);
    return state;
  }

 protected:
  Tensors directions(const UpdateGroup& group) override { return group.gradients; }

  Tensor ratio(const Tensor& weights, const Tensor& gradients,
               const ParameterSettings& group) const override {
    return options().trust * weights / (gradients + group.weight_decay * weights + options().eps);
  }

  void move(const UpdateGroup& group, Tensors gradients, const Tensors& ratios) override {
    Tensors steps = at::_foreach_add(gradients, group.targets, group.settings.weight_decay);
    at::_foreach_mul_(steps, ratios);
    Tensors velocity;
    if (!velocity_.empty()) velocity = select(velocity_, group.indices);
    with_lr(group.settings, [&](const auto& lr) {
      at::_fused_sgd_(group.targets, steps, velocity, /*weight_decay=*/0, options().momentum, lr,
                      /*dampening=*/0, options().nesterov, /*maximize=*/false, /*is_first_step=*/false);
    });
  }

 private:
  Tensors velocity_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lars(const OptimizerOptions& options, std::vector<NamedTensor> parameters) {
  if (options.nesterov && options.momentum == 0)
    throw ConfigError("train.nesterov = true needs momentum: set train.momentum above 0 (0.9 is usual)");
  return std::make_unique<Lars>(options, std::move(parameters));
}

}  // namespace yoke::optim
