// torch.optim.LBFGS, on the tensors of one device.
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/utils.h>

#include <algorithm>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/kernels/lbfgs.h"
#include "yoke/optim/lbfgs_state.h"
#include "yoke/optim/optimizers.h"
#include "yoke/optim/parameter_list.h"
#include "yoke/optim/settings.h"

namespace yoke::optim {
namespace {

using Vector = kernels::LbfgsVector;

// All state lives in tensors of fixed shape, so that a checkpoint can copy into them at any time.
class Lbfgs final : public Optimizer, private kernels::LbfgsVectors {
 public:
  Lbfgs(const OptimizerOptions& options, std::vector<NamedTensor> parameters)
      : list_(options, std::move(parameters)) {
    YOKE_CHECK(list_.size() > 0, "L-BFGS without parameters");
    auto wide = list_.target(0).options().requires_grad(false);
    options_ = {options.history, options.inner_steps, options.line_search == "strong_wolfe",
                wide.dtype() != torch::kDouble};
    int64_t count = 0;
    for (size_t i = 0; i < list_.size(); ++i) count += list_.target(i).numel();
    direction_ = at::zeros({count}, wide);
    previous_gradient_ = at::zeros({count}, wide);
    gradient_changes_ = at::zeros({options.history, count}, wide);
    steps_ = at::zeros({options.history, count}, wide);
    inverse_curvature_ = at::zeros({options.history}, wide);
    scale_ = at::ones({1}, wide);
    counters_ = at::zeros({3}, torch::kLong);
    step_length_ = at::zeros({1}, torch::kDouble);
    if (options_.strong_wolfe) trials_ = at::zeros({2, count}, wide);
  }

  void set_lr(double lr) override { lr_ = lr; }
  void zero_grad() override { list_.zero_grad(); }

  std::vector<NamedTensor> state() override {
    std::vector<NamedTensor> state = {{"lbfgs/direction", direction_},
                                      {"lbfgs/previous_gradient", previous_gradient_},
                                      {"lbfgs/gradient_changes", gradient_changes_},
                                      {"lbfgs/steps", steps_},
                                      {"lbfgs/inverse_curvature", inverse_curvature_},
                                      {"lbfgs/scale", scale_},
                                      {"lbfgs/counters", counters_},
                                      {"lbfgs/step_length", step_length_}};
    list_.append_masters(state);
    return state;
  }

  void update(const LossFunction& loss) override {
    if (!loss.evaluate)
      throw ConfigError("L-BFGS re-evaluates the loss: call step(lr, loss) with a loss function.");
    torch::NoGradGuard no_grad;
    loss_ = &loss;
    const LbfgsState stored(state());
    numbers_ = stored.numbers();
    const double value = evaluate();
    kernels::Lbfgs(options_, *this, numbers_).step(lr_, value);
    stored.set(numbers_);
    loss_ = nullptr;
  }

 private:
  torch::Tensor& vector(int64_t number) {
    if (number == Vector::kGradient) return gradient_;
    if (number == Vector::kDirection) return direction_;
    if (number == Vector::kPrevious) return previous_gradient_;
    const int64_t behind = number - Vector::kFirstPair;
    if (behind >= 2 * options_.history) return row_ = trials_[behind - 2 * options_.history];
    return row_ = (behind % 2 == 0 ? gradient_changes_ : steps_)[behind / 2];
  }

  // Values computed from many elements must steer all replicas alike: they are only made here.
  double same(const torch::Tensor& number) const {
    return (loss_->same_everywhere ? loss_->same_everywhere(number) : number).item<double>();
  }
  double dot(int64_t a, int64_t b) override {
    const torch::Tensor first = vector(a);
    return same(first.dot(vector(b)));
  }
  double max_abs(int64_t a) override { return same(vector(a).abs().max()); }
  double sum_abs(int64_t a) override { return same(vector(a).abs().sum()); }
  void scale(int64_t to, double factor, int64_t from) override {
    const torch::Tensor target = vector(to);
    if (to == from) {
      target.mul_(factor);
    } else {
      target.copy_(vector(from));
      if (factor != 1) target.mul_(factor);
    }
  }
  void add(int64_t to, double factor, int64_t from) override {
    if (to == Vector::kParameters) return move(factor, vector(from));
    const torch::Tensor target = vector(to);
    target.add_(vector(from), factor);
  }

  double evaluate() override {
    double value = 0;
    {
      torch::AutoGradMode with_grad(true);
      zero_grad();
      value = loss_->evaluate().item<double>();
    }
    gradient_ = flat_gradient();
    return value;
  }

  torch::Tensor flat_gradient() const {
    std::vector<torch::Tensor> parts;
    for (size_t i = 0; i < list_.size(); ++i) {
      torch::Tensor gradient = list_.parameter(i).grad();
      if (!gradient.defined()) {
        gradient = at::zeros_like(list_.target(i));
      } else if (gradient.is_sparse()) {
        gradient = gradient.to_dense();
      }
      parts.push_back(gradient.to(direction_.scalar_type()).reshape({-1}));
    }
    return at::cat(parts);
  }

  void move(double length, const torch::Tensor& along) {
    int64_t offset = 0;
    for (size_t i = 0; i < list_.size(); ++i) {
      const torch::Tensor& target = list_.target(i);
      target.add_(along.narrow(0, offset, target.numel()).view(target.sizes()), length);
      offset += target.numel();
    }
    list_.write_back();
  }

  kernels::LbfgsOptions options_;
  ParameterList list_;
  double lr_ = 0;
  const LossFunction* loss_ = nullptr;           // of this step
  kernels::LbfgsNumbers numbers_;                // of this step
  torch::Tensor gradient_, row_;                 // [n], n the number of all elements
  torch::Tensor direction_, previous_gradient_;  // [n]
  torch::Tensor gradient_changes_, steps_;       // [history, n]
  torch::Tensor trials_;                         // [2, n], for the line search
  torch::Tensor inverse_curvature_;              // [history]
  torch::Tensor scale_;                          // of the initial inverse Hessian
  torch::Tensor counters_;                       // int64 [3] on the CPU: iterations, remembered, oldest
  torch::Tensor step_length_;                    // fp64 on the CPU
};

}  // namespace

std::unique_ptr<Optimizer> make_lbfgs(const OptimizerOptions& options, std::vector<NamedTensor> parameters) {
  if (options.weight_decay != 0) {
    throw ConfigError(
        "train.weight_decay = {}: L-BFGS does not support it. Hint: add the term to the loss, or set 0",
        options.weight_decay);
  }
  if (has_groups(options))
    throw ConfigError(
        "train.groups = {}: L-BFGS takes one step along one direction for all parameters; only freeze works "
        "with it. Hint: sgd or adamw",
        options.groups);
  return std::make_unique<Lbfgs>(options, std::move(parameters));
}

}  // namespace yoke::optim
