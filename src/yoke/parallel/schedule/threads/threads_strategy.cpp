#include "yoke/parallel/schedule/threads/threads_strategy.h"

#include "yoke/base/clock.h"
#include "yoke/compute/layers.h"

namespace yoke::parallel {
namespace {

std::vector<models::Model> with_first(const models::Model& first, std::vector<models::Model> followers) {
  followers.insert(followers.begin(), first);
  return followers;
}

std::vector<std::shared_ptr<torch::nn::Module>> modules_of(const std::vector<models::Model>& models) {
  std::vector<std::shared_ptr<torch::nn::Module>> modules;
  for (const models::Model& model : models) modules.push_back(model.module);
  return modules;
}

}  // namespace

ThreadsStrategy::ThreadsStrategy(const models::Model& model, std::vector<models::Model> followers,
                                 optim::Optimizer& optimizer, optim::GradScaler& scaler,
                                 OneDeviceOptions options)
    : scaler_(scaler),
      options_(options),
      models_(with_first(model, std::move(followers))),
      batch_counters_(compute::batch_counters(*model.module)),
      first_(model, optimizer, scaler, std::move(options)),
      parallel_(modules_of(models_),
                [this](size_t replica, const Nested& part) { return loss_of_replica(replica, part); }) {
  for (const models::Model& one : models_) {
    blocks_.emplace_back();
    for (const models::Block& block : one.blocks) blocks_.back().push_back(block.forward);
  }
}

// The part's share of the mean over the whole batch. The last tensor is the target.
Nested ThreadsStrategy::loss_of_replica(size_t replica, const Nested& part) const {
  std::vector<torch::Tensor> inputs = part.flatten();
  torch::Tensor target = inputs.back();
  inputs.pop_back();
  AutocastGuard autocast(options_.device.type(), options_.precision);
  torch::Tensor loss = models_[replica].loss(run_blocks(blocks_[replica], inputs, options_.segments), target);
  return loss * (static_cast<double>(target.size(0)) / static_cast<double>(rows_));
}

ComputeResult ThreadsStrategy::compute(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target,
                                       const MicroBatch& micro) {
  Stopwatch watch;
  Nested::List parts;
  for (const torch::Tensor& input : inputs) parts.emplace_back(options_.place(input));
  parts.emplace_back(target.to(options_.device, /*non_blocking=*/true));
  rows_ = target.size(0);
  if (!batch_counters_.empty()) at::_foreach_add_(batch_counters_, 1);
  torch::Tensor loss = parallel_.forward(Nested(std::move(parts))).tensor().sum() * micro.weight;
  double forward_seconds = watch.lap();
  scaler_.scale(loss).backward();
  return {loss.detach() / micro.weight, forward_seconds, watch.lap()};
}

}  // namespace yoke::parallel
