// FTRL-proximal and proximal gradient: their L1 penalty makes weights exactly 0. Formulas:
// kernels/optimizer_steps.h.
#include <ATen/ops/where.h>

#include <utility>

#include "yoke/base/error.h"
#include "yoke/optim/first_order.h"
#include "yoke/optim/optimizers.h"

namespace yoke::optim {
namespace {

using torch::Tensor;

Tensor shrink(const Tensor& values, const Tensor& by) {
  return values.sign() * (values.abs() - by).clamp_min_(0);
}

// Element by element, whatever the shape.
class SparsifyingOptimizer : public FirstOrderOptimizer {
 public:
  SparsifyingOptimizer(const OptimizerOptions& options, std::vector<NamedTensor> parameters)
      : FirstOrderOptimizer(options, std::move(parameters)), options_(options) {}

 protected:
  struct Elements {
    Tensor weight;               // updated in place, as are the arrays
    std::vector<Tensor> arrays;  // of the optimizer's state
  };
  virtual void move(const Elements& elements, const Tensor& gradient, const Tensor& lr) = 0;
  virtual std::vector<Tensor> arrays_of(size_t parameter) = 0;

  void update_dense(const UpdateGroup& group) override {
    if (lr() == 0) return;
    for (size_t i = 0; i < group.indices.size(); ++i)
      move({group.targets[i], arrays_of(group.indices[i])}, group.gradients[i],
           rate(group.settings, group.targets[i].scalar_type()));
  }

  // Only the rows in the gradient move, as far as the penalty does not move the others.
  void update_sparse(const SparseUpdate& sparse) override {
    if (lr() == 0) return;
    const Tensor rows = sparse.gradient.indices()[0];
    std::vector<Tensor> all = arrays_of(sparse.index);
    Elements own{sparse.target.index_select(0, rows), {}};
    for (const Tensor& array : all) own.arrays.push_back(array.index_select(0, rows));
    move(own, sparse.gradient.values(), rate(sparse.settings, sparse.target.scalar_type()));
    Tensor(sparse.target).index_copy_(0, rows, own.weight);
    for (size_t i = 0; i < all.size(); ++i) all[i].index_copy_(0, rows, own.arrays[i]);
  }

  const OptimizerOptions& options() const { return options_; }

 private:
  OptimizerOptions options_;
};

class Ftrl final : public SparsifyingOptimizer {
 public:
  Ftrl(const OptimizerOptions& options, std::vector<NamedTensor> parameters)
      : SparsifyingOptimizer(options, std::move(parameters)), linear_(list().zeros()), sum_(list().zeros()) {}

  std::vector<NamedTensor> state() override {
    std::vector<NamedTensor> state;
    list().append_masters(state);
    list().append(state, "linear", linear_);
    list().append(state, "sum", sum_);
    return state;
  }

 protected:
  std::vector<Tensor> arrays_of(size_t parameter) override { return {linear_[parameter], sum_[parameter]}; }

  void move(const Elements& elements, const Tensor& gradient, const Tensor& lr) override {
    const double beta = options().ftrl_beta, l1 = options().l1, l2 = options().l2;
    const Tensor &w = elements.weight, &linear = elements.arrays[0], &sum = elements.arrays[1];
    const Tensor stands_for = -(w * (beta / lr + l2) + l1 * w.sign());
    const Tensor fresh = (linear == 0).logical_and_(sum == 0);
    const Tensor root_before = sum.sqrt();
    sum.addcmul_(gradient, gradient);
    const Tensor root = sum.sqrt();
    linear.copy_(at::where(fresh, stands_for, linear) + gradient - (root - root_before) / lr * w);
    w.copy_(-shrink(linear, torch::full_like(lr, l1)) / ((beta + root) / lr + l2));
  }

 private:
  std::vector<Tensor> linear_, sum_;
};

class Proximal final : public SparsifyingOptimizer {
 public:
  using SparsifyingOptimizer::SparsifyingOptimizer;

  std::vector<NamedTensor> state() override {
    std::vector<NamedTensor> state;
    list().append_masters(state);
    return state;
  }

 protected:
  std::vector<Tensor> arrays_of(size_t) override { return {}; }

  void move(const Elements& elements, const Tensor& gradient, const Tensor& lr) override {
    const Tensor& w = elements.weight;
    w.copy_(penalised(w - lr * gradient, lr));
  }

  // All rows have the penalty in each step, whether they have a gradient or not.
  void update_sparse(const SparseUpdate& sparse) override {
    if (FirstOrderOptimizer::lr() == 0) return;
    const Tensor lr = rate(sparse.settings, sparse.target.scalar_type());
    Tensor target = sparse.target;
    target.index_add_(0, sparse.gradient.indices()[0], -lr * sparse.gradient.values());
    target.copy_(penalised(target, lr));
  }

 private:
  Tensor penalised(const Tensor& weight, const Tensor& lr) const {
    return shrink(weight, lr * options().l1) / (1 + lr * options().l2);
  }
};

void check(const OptimizerOptions& options) {
  if (options.weight_decay != 0)
    throw ConfigError("train.weight_decay = {} with train.optimizer = \"{}\": set train.l2 instead.",
                      options.weight_decay, options.optimizer);
  for (const auto& [name, settings] : options.settings)
    if (settings.weight_decay != 0)
      throw ConfigError(
          "train.groups: weight_decay = {} for '{}' with train.optimizer = \"{}\": set train.l2.",
          settings.weight_decay, name, options.optimizer);
}

}  // namespace

std::unique_ptr<Optimizer> make_ftrl(const OptimizerOptions& options, std::vector<NamedTensor> parameters) {
  check(options);
  return std::make_unique<Ftrl>(options, std::move(parameters));
}

std::unique_ptr<Optimizer> make_proximal(const OptimizerOptions& options,
                                         std::vector<NamedTensor> parameters) {
  check(options);
  return std::make_unique<Proximal>(options, std::move(parameters));
}

}  // namespace yoke::optim
