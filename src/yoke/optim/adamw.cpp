// torch.optim.AdamW: Adam with decoupled weight decay (Loshchilov & Hutter 2019).
#include <ATen/ops/_fused_adamw.h>

#include <utility>

#include "yoke/base/error.h"
#include "yoke/optim/adamw_on_cuda.h"
#include "yoke/optim/first_order.h"
#include "yoke/optim/optimizers.h"

namespace yoke::optim {
namespace {

class AdamW final : public FirstOrderOptimizer {
 public:
  AdamW(const OptimizerOptions& options, std::vector<NamedTensor> parameters)
      : FirstOrderOptimizer(options, std::move(parameters)),
        options_(options),
        mean_(list().zeros()),
        mean_square_(list().zeros()),
        steps_(list()) {
    options_.eps = effective_eps(options);
  }

  std::vector<NamedTensor> state() override {
    std::vector<NamedTensor> state = {{"step", steps_.all()}};
    list().append_masters(state);
    list().append(state, "exp_avg", mean_);
    list().append(state, "exp_avg_sq", mean_square_);
    return state;
  }

  void update(const LossFunction& loss) override {
    torch::NoGradGuard no_grad;
    // The kernel takes one learning rate and weight decay for all.
    if (!list().uniform() ||
        !update_on_cuda(list(), {mean_, mean_square_, steps_, lr_on_device(), divisor(), skip()}, options_))
      FirstOrderOptimizer::update(loss);
  }

 protected:
  bool can_follow_scaled_update() const override { return true; }

  void update_dense(const UpdateGroup& group) override {
    steps_.advance(group.indices, skip());
    auto mean = select(mean_, group.indices);
    auto mean_square = select(mean_square_, group.indices);
    auto steps = steps_.select(group.indices);
    with_lr(group.settings, [&](const auto& lr) {
      at::_fused_adamw_(group.targets, group.gradients, mean, mean_square, /*max_exp_avg_sqs=*/{}, steps, lr,
                        options_.beta1, options_.beta2, group.settings.weight_decay, options_.eps,
                        /*amsgrad=*/false, /*maximize=*/false, divisor(), skip());
    });
  }

  void update_sparse(const SparseUpdate& update) override {
    throw ConfigError(
        "train.optimizer = adamw: parameter '{}' has sparse gradients, which AdamW does not support. Hint: "
        "adagrad or sgd",
        list().name(update.index));
  }

 private:
  OptimizerOptions options_;
  std::vector<torch::Tensor> mean_;
  std::vector<torch::Tensor> mean_square_;
  StepCounters steps_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(const OptimizerOptions& options, std::vector<NamedTensor> parameters) {
  return std::make_unique<AdamW>(options, std::move(parameters));
}

}  // namespace yoke::optim
