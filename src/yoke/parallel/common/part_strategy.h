// What ranks that hold a part of the model each have in common: one update a batch, by gradients that are
// combined over the ranks of the part, and decisions that all ranks take together.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "yoke/compute/precision.h"
#include "yoke/optim/grad_scaler.h"
#include "yoke/optim/optimizer.h"
#include "yoke/parallel/common/gradient_exchange.h"
#include "yoke/parallel/placement/stage/stage.h"
#include "yoke/parallel/placement/stage/stage_state.h"
#include "yoke/parallel/strategy.h"

namespace yoke::parallel {

struct PartOptions {
  torch::Device device = torch::kCPU;
  Precision precision = Precision::kFp32;  // of autocast
  double clip_norm = 0;
  SliceAxis slices;           // where the part's parameters are slices of the model's
  PartShards shards;          // if there are some, the optimizer updates shards.source().owned
  std::string hook = "none";  // ddp.hook: how gradients travel between the replicas of the part
};

// Leaves forward and backward to who derives from it.
class PartStrategy : public Strategy {
 public:
  void acquire() override { start_step(/*forget_gradients=*/true); }
  StepNews agree(const StepNews& here) override;
  void share_buffers() override;
  void drain() override { await_parameters(); }
  std::optional<Communication> communication() const override { return communication_; }
  CommitResult commit(const CommitOptions& options) override;
  std::optional<std::string> first_non_finite_gradient() override;
  std::optional<double> loss_scale() const override;

  comm::Communicator* team() const override { return &stage_.world; }
  Traffic traffic() const override {
    return {.pipeline = stage_.world.counters().bytes_sent + gradients_.bytes_to_stages(),
            .data = gradients_.bytes_to_replicas()};
  }
  void begin(int64_t total_steps) override;
  bool exchange_average() override;
  std::vector<StatePiece> state() override;
  std::vector<StatePiece> gradients() override;

 protected:
  // Collective. All must outlive the strategy.
  PartStrategy(PipelineStage& stage, optim::Optimizer& optimizer, optim::GradScaler& scaler,
               PartOptions options);

  // acquire(); gradients of before stay where passes run on from step to step.
  void start_step(bool forget_gradients);
  // The pieces that other ranks of the part have moved.
  void await_parameters();
  // Before a pass: what has failed half-way cannot be repeated, since others would take its messages for the
  // next ones. Throws CommError.
  void begin_pass();
  void end_pass() { half_way_ = false; }
  // Seconds that a pass has waited for other ranks.
  void note_waited(double seconds);

  PipelineStage& stage_;
  optim::Optimizer& optimizer_;
  optim::GradScaler& scaler_;
  GradientExchange gradients_;

 private:
  PartOptions part_options_;
  bool half_way_ = false;
  std::optional<Communication> communication_;
};

}  // namespace yoke::parallel
