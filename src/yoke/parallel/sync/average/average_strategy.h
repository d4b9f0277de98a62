// Replicas that train on their own and average parameters now and then: local SGD, post-local SGD, DiLoCo,
// gossip, in rounds or in pairs (docs/design/averaging.md).
//
// Between two rounds replicas differ. What others see of them does not: drain() puts the average over all
// replicas into the parameters and buffers, and the next step continues from each replica's own values;
// state() makes the average, of the optimizer's state too, what every replica continues from. So an
// evaluation leaves the training as it is, and a checkpoint holds one model that resumes to the bit.
#pragma once

#include <optional>

#include "yoke/parallel/common/ddp/distributed_data_parallel.h"
#include "yoke/parallel/common/replica.h"
#include "yoke/parallel/sync/average/combiner.h"
#include "yoke/parallel/sync/average/news.h"
#include "yoke/parallel/sync/average/pair_gossip.h"
#include "yoke/plan/averaging/rounds.h"

namespace yoke::parallel {

class AverageStrategy : public Replica {
 public:
  // Collective: replicas get rank 0's values. All but the options must outlive the strategy. Throws
  // ConfigError.
  AverageStrategy(const models::Model& model, optim::Optimizer& optimizer, optim::GradScaler& scaler,
                  OneDeviceOptions options, comm::Communicator& comm, const AverageOptions& average,
                  const DdpOptions& ddp);
  ~AverageStrategy() override;

  void acquire() override;
  ComputeResult compute(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target,
                        const MicroBatch& micro) override;
  StepNews agree(const StepNews& here) override;
  void settle() override { news_.settle(); }
  CommitResult commit(const CommitOptions& options) override;
  void share_buffers() override { drain(); }
  void drain() override;
  std::optional<Communication> communication() const override { return talk_; }
  Traffic traffic() const override;
  bool overlaps_steps() const override { return !lockstep_; }
  void restored(int64_t step) override { steps_ = step; }
  std::vector<StatePiece> gradients() override;
  std::vector<StatePiece> state() override;

 private:
  void begin_round(Fragment& fragment);
  void meet(bool asks);
  void end_round(Fragment& fragment);
  void average_parameters();
  void average_buffers();
  void average_optimizer();
  bool averages_gradients() const { return steps_ < rounds_.after; }

  const models::Model& model_;
  optim::Optimizer& optimizer_;
  AverageOptions options_;
  DdpOptions ddp_options_;
  plan::RoundPlan rounds_;
  comm::GiveUpOnException give_up_;
  NamedTensors buffers_;
  std::vector<Fragment> fragments_;
  std::unique_ptr<Combiner> combiner_;
  News news_;
  std::optional<PairGossip> pairs_;             // async_gossip
  std::optional<DistributedDataParallel> ddp_;  // post_local, before it is local
  bool lockstep_;      // replicas are equal after every step, and wait for each other in it
  int64_t steps_ = 0;  // computed to their end
  bool told_ = true;   // of the step that was computed last
  // What differs between replicas: buffers (a step was taken), optimizer state, parameters.
  bool stale_ = false, alone_ = false, equal_ = true;
  bool shown_ = false;              // parameters and buffers hold the average
  bool anchored_ = false;           // anchors are where the parameters were
  std::vector<torch::Tensor> own_;  // of each fragment: this replica's values, while the average is shown
  Communication talk_;              // of this step
};

}  // namespace yoke::parallel
