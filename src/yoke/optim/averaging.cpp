#include "yoke/optim/averaging.h"

#include <ATen/ops/zeros.h>
#include <torch/utils.h>

#include <map>
#include <utility>

#include "yoke/optim/optimizers.h"

namespace yoke::optim {
namespace {

class Averaging final : public Optimizer {
 public:
  Averaging(double decay, std::vector<NamedTensor> parameters, std::unique_ptr<Optimizer> optimizer)
      : decay_(decay), parameters_(std::move(parameters)), inner_(std::move(optimizer)) {
    torch::NoGradGuard no_grad;
    std::map<std::string, torch::Tensor> masters;
    for (const auto& [name, tensor] : inner_->state()) masters.emplace(name, tensor);
    for (const auto& [name, parameter] : parameters_) {
      auto master = masters.find("master/" + name);
      targets_.push_back(master == masters.end() ? parameter : master->second);
      averages_.push_back(targets_.back().detach().clone());
    }
    auto device = parameters_.empty() ? torch::Device(torch::kCPU) : parameters_[0].second.device();
    steps_ = at::zeros({static_cast<int64_t>(parameters_.size())},
                       at::TensorOptions().dtype(torch::kFloat).device(device));
  }

  void set_lr(double lr) override { inner_->set_lr(lr); }
  void zero_grad() override { inner_->zero_grad(); }

  void update(const LossFunction& loss) override {
    inner_->update(loss);
    torch::NoGradGuard no_grad;
    if (parameters_.empty()) return;
    const torch::Tensor done = steps_[0].to(torch::kDouble);
    const torch::Tensor weight = 1 - ((1 + done) / (10 + done)).clamp_max(decay_);
    for (size_t i = 0; i < targets_.size(); ++i)
      averages_[i].lerp_(targets_[i], weight.to(averages_[i].scalar_type()));
    steps_.add_(1);
  }

  std::vector<NamedTensor> state() override {
    std::vector<NamedTensor> state = inner_->state();
    state.emplace_back("ema_steps", steps_);
    for (size_t i = 0; i < parameters_.size(); ++i)
      state.emplace_back("ema/" + parameters_[i].first, averages_[i]);
    return state;
  }

  void exchange() {
    torch::NoGradGuard no_grad;
    for (size_t i = 0; i < targets_.size(); ++i) {
      const torch::Tensor weights = targets_[i].clone();
      targets_[i].copy_(averages_[i]);
      averages_[i].copy_(weights);
      const torch::Tensor& parameter = parameters_[i].second;
      if (parameter.scalar_type() != targets_[i].scalar_type()) parameter.copy_(targets_[i]);
    }
  }

  Optimizer& inner() { return *inner_; }

 private:
  double decay_;
  std::vector<NamedTensor> parameters_;
  std::unique_ptr<Optimizer> inner_;
  std::vector<torch::Tensor> targets_;  // parameters, or their masters
  std::vector<torch::Tensor> averages_;
  torch::Tensor steps_;  // one number for each parameter, as all lists of a state; they are equal
};

}  // namespace

bool exchange_average(Optimizer& optimizer) {
  auto* averaging = dynamic_cast<Averaging*>(&optimizer);
  if (averaging == nullptr) return false;
  averaging->exchange();
  return true;
}

Optimizer& without_average(Optimizer& optimizer) {
  auto* averaging = dynamic_cast<Averaging*>(&optimizer);
  return averaging == nullptr ? optimizer : averaging->inner();
}

std::unique_ptr<Optimizer> make_averaging(const OptimizerOptions& options,
                                          std::vector<NamedTensor> parameters,
                                          std::unique_ptr<Optimizer> optimizer) {
  return std::make_unique<Averaging>(options.ema, std::move(parameters), std::move(optimizer));
}

}  // namespace yoke::optim
