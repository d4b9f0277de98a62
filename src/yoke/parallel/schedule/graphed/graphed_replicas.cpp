#include "yoke/parallel/schedule/graphed/graphed_replicas.h"

#include <cmath>
#include <utility>

#include "yoke/optim/clip.h"

namespace yoke::parallel {

GraphedReplicas::GraphedReplicas(const models::Model& model, optim::Optimizer& optimizer,
                                 optim::GradScaler& scaler, const OneDeviceOptions& options,
                                 comm::Communicator& comm, const DdpOptions& ddp)
    : DdpStrategy(model, optimizer, scaler, options, comm, ddp),
      optimizer_(optimizer),
      clip_norm_(options.clip_norm),
      parameters_(model.module->parameters()),
      recorded_(options) {}

void GraphedReplicas::acquire() {
  DdpStrategy::acquire();
  begins_ = true;
}

ComputeResult GraphedReplicas::compute(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target,
                                       const MicroBatch& micro) {
  if (!has_buckets_) return DdpStrategy::compute(inputs, target, micro);
  count_batch(target);
  recorded_.fill(inputs, target, micro.weight);
  ComputeResult result;
  result.loss = recorded_.pass(std::exchange(begins_, false), [&] {
    compute::GradientHomes::Use homes(ddp().gradient_homes());
    auto local = ddp().no_sync();
    return device().compute(recorded_.inputs(), recorded_.target(), {.weight = micro.weight}).loss;
  });
  if (!micro.last) return result;
  ddp().reduce();
  count_step();
  return result;
}

CommitResult GraphedReplicas::commit(const CommitOptions& commit) {
  if (!std::exchange(has_buckets_, true)) return DdpStrategy::commit(commit);
  CommitResult result;
  if (commit.measure_norm) {
    result.grad_norm = optim::clip_grad_norm(parameters_, /*max_norm=*/0).item<double>();
    result.updated = std::isfinite(*result.grad_norm);
  }
  if (result.updated) {
    optimizer_.set_lr(commit.lr);
    recorded_.update([this] {
      if (clip_norm_ > 0) optim::clip_grad_norm(parameters_, clip_norm_);
      optimizer_.update({});
    });
  }
  recorded_.end_step();
  return result;
}

}  // namespace yoke::parallel
