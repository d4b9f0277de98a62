// Data parallel training on CUDA devices with the step recorded as CUDA graphs, one device per rank.
//
// The same bits as DdpStrategy, and the same messages, with almost no CPU work. A graph does not communicate:
// gradients are reduced between that of the passes and that of the update, as their buckets lie, so nothing
// overlaps backward. The first step runs as DdpStrategy's: it forms the buckets.
#pragma once

#include "yoke/parallel/common/ddp/ddp_strategy.h"
#include "yoke/parallel/schedule/graphed/recorded_steps.h"

namespace yoke::parallel {

class GraphedReplicas : public DdpStrategy {
 public:
  // Collective (DistributedDataParallel). All arguments must outlive the strategy. Losses are not scaled.
  GraphedReplicas(const models::Model& model, optim::Optimizer& optimizer, optim::GradScaler& scaler,
                  const OneDeviceOptions& options, comm::Communicator& comm, const DdpOptions& ddp);

  void acquire() override;
  ComputeResult compute(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target,
                        const MicroBatch& micro) override;
  CommitResult commit(const CommitOptions& options) override;

 private:
  optim::Optimizer& optimizer_;
  double clip_norm_;
  std::vector<torch::Tensor> parameters_;
  RecordedSteps recorded_;
  bool has_buckets_ = false;
  bool begins_ = true;  // the next batch is the first of its step
};

}  // namespace yoke::parallel
