// torch.optim.LBFGS with a fixed step length (no line search), after minFunc.
#include <ATen/ops/cat.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/optim/optimizers.h"
#include "yoke/optim/parameter_list.h"

namespace yoke::optim {
namespace {

constexpr double kGradientTolerance = 1e-7;
constexpr double kChangeTolerance = 1e-9;
constexpr double kLeastCurvature = 1e-10;

// All state lives in tensors of fixed shape, so that a checkpoint can copy into them at any time.
class Lbfgs final : public Optimizer {
 public:
  Lbfgs(const OptimizerOptions& options, std::vector<NamedTensor> parameters)
      : options_(options), list_(std::move(parameters)) {
    YOKE_CHECK(list_.size() > 0, "L-BFGS without parameters");
    auto wide = list_.target(0).options().requires_grad(false);
    int64_t count = 0;
    for (size_t i = 0; i < list_.size(); ++i) count += list_.target(i).numel();
    direction_ = at::zeros({count}, wide);
    previous_gradient_ = at::zeros({count}, wide);
    gradient_changes_ = at::zeros({options.history, count}, wide);
    steps_ = at::zeros({options.history, count}, wide);
    inverse_curvature_ = at::zeros({options.history}, wide);
    scale_ = at::ones({}, wide);
    counters_ = at::zeros({3}, torch::kLong);
    step_length_ = at::zeros({}, torch::kDouble);
  }

  void set_lr(double lr) override { lr_ = lr; }
  void zero_grad() override { list_.zero_grad(); }

  std::vector<NamedTensor> state() override {
    std::vector<NamedTensor> state = {{"direction", direction_},
                                      {"previous_gradient", previous_gradient_},
                                      {"gradient_changes", gradient_changes_},
                                      {"steps", steps_},
                                      {"inverse_curvature", inverse_curvature_},
                                      {"scale", scale_},
                                      {"counters", counters_},
                                      {"step_length", step_length_}};
    list_.append_masters(state);
    return state;
  }

  void update(const LossFunction& loss) override {
    if (!loss.evaluate)
      throw ConfigError("L-BFGS re-evaluates the loss: call step(lr, loss) with a loss function.");
    torch::NoGradGuard no_grad;
    same_everywhere_ = loss.same_everywhere;
    double value = evaluate(loss);
    torch::Tensor gradient = flat_gradient();
    if (max_abs(gradient) <= kGradientTolerance) return;
    int64_t most_evaluations = options_.inner_steps * 5 / 4;
    int64_t evaluations = 1;
    for (int64_t inner = 1;; ++inner) {
      find_direction(gradient);
      if (dot(gradient, direction_).item<double>() > -kChangeTolerance) break;
      move(step_length_.item<double>());
      if (inner == options_.inner_steps) break;
      double previous = std::exchange(value, evaluate(loss));
      gradient = flat_gradient();
      if (++evaluations >= most_evaluations || max_abs(gradient) <= kGradientTolerance ||
          max_abs(direction_) * step_length_.item<double>() <= kChangeTolerance ||
          std::abs(value - previous) < kChangeTolerance) {
        break;
      }
    }
  }

 private:
  // Indices into counters_.
  enum Counter { kIterations, kRemembered, kOldest };
  int64_t& counter(Counter which) { return counters_.data_ptr<int64_t>()[which]; }

  // Values computed from many elements must steer all replicas alike: they are only made here.
  torch::Tensor same(const torch::Tensor& number) const {
    return same_everywhere_ ? same_everywhere_(number) : number;
  }
  torch::Tensor dot(const torch::Tensor& a, const torch::Tensor& b) const { return same(a.dot(b)); }
  double max_abs(const torch::Tensor& x) const { return same(x.abs().max()).item<double>(); }

  double evaluate(const LossFunction& loss) {
    torch::AutoGradMode with_grad(true);
    zero_grad();
    return loss.evaluate().item<double>();
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

  void move(double length) {
    int64_t offset = 0;
    for (size_t i = 0; i < list_.size(); ++i) {
      const torch::Tensor& target = list_.target(i);
      target.add_(direction_.narrow(0, offset, target.numel()).view(target.sizes()), length);
      offset += target.numel();
    }
    list_.write_back();
  }

  // Row of the i-th oldest stored step: the history is a ring buffer.
  int64_t row(int64_t i) { return (counter(kOldest) + i) % options_.history; }

  void find_direction(const torch::Tensor& gradient) {
    bool first = counter(kIterations)++ == 0;
    if (first) {
      at::neg_out(direction_, gradient);
      step_length_.fill_(std::min(1.0, 1.0 / same(gradient.abs().sum()).item<double>()) * lr_);
    } else {
      remember(gradient);
      two_loop_recursion(gradient);
      step_length_.fill_(lr_);
    }
    previous_gradient_.copy_(gradient);
  }

  void remember(const torch::Tensor& gradient) {
    torch::Tensor change = gradient - previous_gradient_;
    torch::Tensor step = direction_ * step_length_.item<double>();
    torch::Tensor curvature = dot(change, step);
    if (!(curvature.item<double>() > kLeastCurvature)) return;
    if (counter(kRemembered) == options_.history) {
      counter(kOldest) = row(1);
    } else {
      counter(kRemembered)++;
    }
    int64_t newest = row(counter(kRemembered) - 1);
    gradient_changes_[newest].copy_(change);
    steps_[newest].copy_(step);
    inverse_curvature_[newest].copy_(curvature.reciprocal());
    scale_.copy_(curvature / dot(change, change));
  }

  // Nocedal & Wright, algorithm 7.4: the approximate inverse Hessian times the negative gradient.
  void two_loop_recursion(const torch::Tensor& gradient) {
    int64_t count = counter(kRemembered);
    std::vector<torch::Tensor> alpha(count);
    at::neg_out(direction_, gradient);
    for (int64_t i = count - 1; i >= 0; --i) {
      alpha[i] = dot(steps_[row(i)], direction_) * inverse_curvature_[row(i)];
      direction_.addcmul_(gradient_changes_[row(i)], alpha[i], -1);
    }
    direction_.mul_(scale_);
    for (int64_t i = 0; i < count; ++i) {
      torch::Tensor beta = dot(gradient_changes_[row(i)], direction_) * inverse_curvature_[row(i)];
      direction_.addcmul_(steps_[row(i)], alpha[i] - beta);
    }
  }

  OptimizerOptions options_;
  ParameterList list_;
  double lr_ = 0;
  std::function<torch::Tensor(const torch::Tensor&)> same_everywhere_;  // of this step
  torch::Tensor direction_, previous_gradient_;                         // [n], n the number of all elements
  torch::Tensor gradient_changes_, steps_;                              // [history, n]
  torch::Tensor inverse_curvature_;                                     // [history]
  torch::Tensor scale_;                                                 // of the initial inverse Hessian
  torch::Tensor counters_;                                              // int64 [3] on the CPU
  torch::Tensor step_length_;                                           // fp64 on the CPU
};

}  // namespace

std::unique_ptr<Optimizer> make_lbfgs(const OptimizerOptions& options, std::vector<NamedTensor> parameters) {
  if (options.weight_decay != 0) {
    throw ConfigError(
        "train.weight_decay = {}: L-BFGS does not support it. Hint: add the term to the loss, or set 0",
        options.weight_decay);
  }
  return std::make_unique<Lbfgs>(options, std::move(parameters));
}

}  // namespace yoke::optim
