#include "yoke/parallel/schedule/pipeline/replay.h"

#include <torch/utils.h>

#include <algorithm>
#include <cmath>

#include "yoke/kernels/clip_factor.h"
#include "yoke/optim/clip.h"
#include "yoke/optim/settings.h"
#include "yoke/parallel/schedule/pipeline/late_updates.h"

namespace yoke::parallel {

using plan::ScheduleKind;

StaleReplay::StaleReplay(const models::Model& model, const PipelineLayout& layout,
                         const optim::OptimizerOptions& optimizer, bool stash)
    : layout_(layout), clip_norm_(optimizer.clip_norm), stash_(stash), scaler_({.enabled = false}) {
  std::vector<OwnedTensor> tensors = owned_tensors(model, layout);
  std::vector<optim::NamedTensor> all;
  for (const OwnedTensor& one : tensors)
    if (one.is_parameter) all.emplace_back(one.name, one.tensor);
  const optim::OptimizerOptions settled = optim::with_settings(optimizer, all);
  StageRunnerOptions options;
  options.segments = {{0, model.blocks.size(), false}};
  for (int s = 0; s < layout.request.stages; ++s) {
    Stage& stage = stages_.emplace_back();
    for (const OwnedTensor& one : tensors) {
      if (!one.is_trained() || !one.held_by(s)) continue;
      stage.parameters.emplace_back(one.name, one.tensor);
      stage.newest.emplace_back(one.name, one.tensor.detach().clone().requires_grad_());
      stage.holders.push_back(one.stages);
      stage.history[0].push_back(one.tensor.detach().clone());
    }
    stage.optimizer = optim::make(settled, stage.newest);
    stage.runner = std::make_unique<StageRunner>(model, scaler_, layout_, s, options);
  }
}

int StaleReplay::version_for(int stage, int minibatch) const {
  const plan::ScheduleRequest& request = layout_.request;
  if (request.kind == ScheduleKind::k2BW) return std::max(0, minibatch - 1);
  int behind = request.vertical_sync ? request.stages - 1 : request.stages - 1 - stage;
  return std::max(0, minibatch - behind);
}

void StaleReplay::load(Stage& stage, int version) {
  stage.in_use.clear();
  for (const torch::Tensor& one : stage.history.at(version)) stage.in_use.push_back(one.clone());
}

double StaleReplay::forward(int micro, int minibatch, Tensors inputs, const torch::Tensor& target,
                            double weight) {
  for (size_t s = 0; s < stages_.size(); ++s) {
    Stage& stage = stages_[s];
    load(stage, version_for(static_cast<int>(s), minibatch));
    for (size_t i = 0; i < stage.parameters.size(); ++i) stage.parameters[i].second.set_data(stage.in_use[i]);
    Tensors outputs = stage.runner->forward(0, micro, std::move(inputs));
    inputs.clear();
    for (const torch::Tensor& one : outputs)
      inputs.push_back(one.detach().requires_grad_(one.requires_grad()));
  }
  return stages_.back().runner->finish(0, micro, target, weight).item<double>();
}

void StaleReplay::backward(int micro) {
  Tensors gradients;
  for (auto stage = stages_.rbegin(); stage != stages_.rend(); ++stage) {
    for (size_t i = 0; i < stage->parameters.size(); ++i) {
      auto& [name, parameter] = stage->parameters[i];
      // Bypasses autograd's version check, so that what it saved of the weights changes with them.
      if (!stash_) stage->in_use[i].variable_data().copy_(stage->newest[i].second.detach());
      parameter.set_data(stage->in_use[i]);
    }
    gradients = stage->runner->backward(0, micro, gradients);
    for (size_t i = 0; i < stage->parameters.size(); ++i) {
      torch::Tensor& gradient = stage->parameters[i].second.mutable_grad();
      torch::Tensor& sum = stage->newest[i].second.mutable_grad();
      if (gradient.defined()) sum = sum.defined() ? sum + gradient : gradient.clone();
      gradient.reset();
    }
  }
}

void StaleReplay::clip_whole() {
  std::map<std::string, torch::Tensor> once;  // tied weights count once
  for (const Stage& stage : stages_)
    for (const auto& [name, tensor] : stage.newest) once.emplace(name, tensor);
  double square = 0;
  for (const auto& [name, tensor] : once)
    if (tensor.grad().defined()) square += tensor.grad().square().sum().item<double>();
  double factor = kernels::clip_factor(std::sqrt(square), clip_norm_);
  for (Stage& stage : stages_)
    for (auto& [name, tensor] : stage.newest)
      if (tensor.grad().defined()) tensor.mutable_grad().mul_(factor);
}

void StaleReplay::clip_each(Stage& stage) const {
  std::map<std::vector<int>, Tensors> sets;
  for (size_t i = 0; i < stage.newest.size(); ++i) sets[stage.holders[i]].push_back(stage.newest[i].second);
  for (const auto& [stages, parameters] : sets) optim::clip_grad_norm(parameters, clip_norm_);
}

void StaleReplay::update(double lr) {
  std::map<std::string, torch::Tensor> sums;  // tied weights are updated together
  for (Stage& stage : stages_) {
    for (auto& [name, tensor] : stage.newest) {
      if (!tensor.grad().defined()) continue;
      torch::Tensor& sum = sums[name];
      sum = sum.defined() ? sum + tensor.grad() : tensor.grad();
    }
  }
  ++updates_;
  for (Stage& stage : stages_)
    for (auto& [name, tensor] : stage.newest)
      if (sums.count(name) > 0) tensor.mutable_grad() = sums[name].clone();
  bool whole = norm_comes_in_time(layout_.request);
  if (clip_norm_ > 0 && whole) clip_whole();
  for (Stage& stage : stages_) {
    if (clip_norm_ > 0 && !whole) clip_each(stage);
    stage.optimizer->step(lr);
    stage.optimizer->zero_grad();
    for (const auto& [name, tensor] : stage.newest)
      stage.history[updates_].push_back(tensor.detach().clone());
    stage.history.erase(updates_ - layout_.request.stages - 1);
  }
}

double StaleReplay::step(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target, double lr) {
  bool each = layout_.request.kind == ScheduleKind::kPipedream;
  int64_t samples = target.size(0), parts = layout_.request.microbatches;
  double loss = 0;
  for (int64_t i = 0; i < parts; ++i, ++micro_) {
    int64_t begin = samples * i / parts, rows = samples * (i + 1) / parts - begin;
    double share = static_cast<double>(rows) / static_cast<double>(samples);
    Tensors part;
    for (const torch::Tensor& input : inputs) part.push_back(input.narrow(0, begin, rows));
    int minibatch = each ? micro_ : updates_;
    loss += share * forward(micro_, minibatch, part, target.narrow(0, begin, rows), each ? 1.0 : share);
    backward(micro_);
    if (each) update(lr);
  }
  if (!each) update(lr);
  return loss;
}

std::vector<optim::NamedTensor> StaleReplay::weights() const {
  std::vector<optim::NamedTensor> all;
  for (const Stage& stage : stages_)
    for (const auto& [name, tensor] : stage.newest) all.emplace_back(name, tensor.detach());
  return all;
}

}  // namespace yoke::parallel
