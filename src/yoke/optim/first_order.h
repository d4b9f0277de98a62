// Common base of all optimizers but L-BFGS: grouped gradients, and a learning rate that
// CUDA graphs can follow.
#pragma once

#include <torch/types.h>

#include <optional>
#include <vector>

#include "yoke/optim/parameter_list.h"
#include "yoke/optim/scaled_update.h"

namespace yoke::optim {

class FirstOrderOptimizer : public Optimizer {
 public:
  FirstOrderOptimizer(const OptimizerOptions& options, std::vector<NamedTensor> parameters);

  void set_lr(double lr) override;
  void update(const LossFunction& loss) override;
  void zero_grad() override { list_.zero_grad(); }
  bool follow(const ScaledUpdate& scaled);

 protected:
  // Whether update_dense() honours divisor() and skip().
  virtual bool can_follow_scaled_update() const { return false; }
  virtual void update_dense(const UpdateGroup& group) = 0;
  virtual void update_sparse(const SparseUpdate& update) = 0;

  // Calls a fused operator with the learning rate of a group in the form this device needs.
  template <class Operator>
  void with_lr(const ParameterSettings& group, const Operator& fused) const {
    if (lr_on_device_.defined()) {
      fused(group.lr == 1 ? lr_on_device_ : lr_on_device_ * group.lr);
    } else {
      fused(lr_ * group.lr);
    }
  }

  // The learning rate of a group as a scalar tensor of this type, which a replayed CUDA graph reads anew.
  torch::Tensor rate(const ParameterSettings& group, torch::ScalarType type) const;

  const ParameterList& list() const { return list_; }
  double lr() const { return lr_; }
  // Empty: 1, and 0.
  std::optional<torch::Tensor> divisor() const { return defined_or_empty(scaled_.divisor); }
  std::optional<torch::Tensor> skip() const { return defined_or_empty(scaled_.skip); }
  // Defined on CUDA.
  const torch::Tensor& lr_on_device() const { return lr_on_device_; }

 private:
  static std::optional<torch::Tensor> defined_or_empty(const torch::Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  }

  ParameterList list_;
  double lr_ = 0;
  // CUDA: fp32, read by the kernels when they run, so that a replayed graph uses the latest set_lr().
  torch::Tensor lr_on_device_;
  ScaledUpdate scaled_;
};

// Number of updates of each parameter. One tensor with a scalar view per parameter, because a parameter
// without a gradient does not advance.
class StepCounters {
 public:
  explicit StepCounters(const ParameterList& list);
  // `skip`: a scalar, 1 if they do not advance after all.
  void advance(const std::vector<size_t>& indices, const std::optional<torch::Tensor>& skip = {});
  std::vector<torch::Tensor> select(const std::vector<size_t>& indices) const;
  const torch::Tensor& all() const { return all_; }

 private:
  torch::Tensor all_;                  // fp32 [parameters], as required by the fused operators
  std::vector<torch::Tensor> single_;  // views of all_
};

}  // namespace yoke::optim
