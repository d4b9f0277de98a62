// One stage of a pipeline on this rank: executes the schedule and updates the stage's own weights.
//
// Schedules with a flush equal gradient accumulation on one device: compute() runs one batch in
// micro-batches, commit() updates. `pipedream` and `2bw` overlap steps: compute() feeds one batch in and
// updates as scheduled, losses become available later (settle()), and drain() finishes what is in flight.
#pragma once

#include <memory>
#include <optional>

#include "yoke/comm/communicator.h"
#include "yoke/parallel/common/part_strategy.h"
#include "yoke/parallel/holds_shard.h"
#include "yoke/parallel/schedule/pipeline/interpreter.h"
#include "yoke/parallel/schedule/pipeline/late_updates.h"
#include "yoke/parallel/schedule/pipeline/news.h"

namespace yoke::parallel {

struct PipelineStrategyOptions {
  StageRunnerOptions runner;
  double clip_norm = 0;
  // Without a flush: updates with non-finite gradients on some stage are skipped on all of them.
  bool skip_non_finite = false;
  SliceAxis slices;           // if a stage's parameters are slices of the model's
  PartShards shards;          // as in PartOptions
  std::string hook = "none";  // as in PartOptions
  // Copies an input to the device, in the memory format of the model's weights.
  std::function<torch::Tensor(const torch::Tensor&)> place = [](const torch::Tensor& input) { return input; };
};

class PipelineStrategy : public PartStrategy, public HoldsShard {
 public:
  // Collective. All arguments must outlive the strategy. Throws ConfigError for options that need the
  // gradients of all stages in time (fp16, skip_non_finite) with a schedule that does not provide them.
  PipelineStrategy(const models::Model& model, PipelineStage& stage, optim::Optimizer& optimizer,
                   optim::GradScaler& scaler, PipelineStrategyOptions options);

  void acquire() override { start_step(/*forget_gradients=*/flushes_); }
  ComputeResult compute(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target,
                        const MicroBatch& micro) override;
  StepNews agree(const StepNews& here) override;
  void settle() override;
  void drain() override;
  CommitResult commit(const CommitOptions& options) override;

  DataShare share() const override;
  bool overlaps_steps() const override { return !flushes_; }
  RunEnd finish(int64_t peak_memory) override;
  nlohmann::json layout() const override;
  std::unique_ptr<Replay> replay(const models::Model& model,
                                 const optim::OptimizerOptions& optimizer) const override;
  // Outputs are on the ranks of the last stage.
  std::vector<torch::Tensor> forward(const std::vector<torch::Tensor>& inputs) override;

  std::vector<StatePiece> shard() override { return state(); }
  ShardPlace place_of_shard() const override {
    return {stage_.place.stage, stage_.layout.request.stages, "stage"};
  }

  // What this rank executed in the last step.
  const std::vector<PipelineEvent>& events() const { return events_; }
  // And in the drain() after it, if anything was in flight.
  const std::vector<PipelineEvent>& drained() const { return drained_; }
  const PipelineStage& stage() const { return stage_; }

 private:
  MicroBatches cut(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target, double weight);
  Interpreter::Updates updates();
  void update(const plan::StreamAction& action);
  void apply(LateUpdates::Update update);
  void take_late();
  bool is_last_stage() const { return stage_.place.stage + 1 == stage_.layout.request.stages; }

  const models::Model& model_;
  PipelineStrategyOptions options_;
  bool flushes_;
  Transfers transfers_;
  StageRunner runner_;
  Interpreter interpreter_;
  std::optional<LateUpdates> late_;  // where updates wait for the norm of all stages
  NewsExchange news_;
  plan::ScheduleStream stream_;
  double lr_ = 0;
  bool last_ = true;  // micro-batch of the step: gradients are summed behind it
  std::vector<PipelineEvent> events_, drained_;
};

}  // namespace yoke::parallel
