// One stage of a pipeline on this rank: interprets the schedule, and updates the stage's own weights.
//
// Schedules that flush equal gradient accumulation on one device: compute() runs one batch in micro-batches,
// commit() updates. `pipedream` and `2bw` run on from step to step: compute() feeds one batch in and updates
// as the schedule says, losses come later (settle()), and drain() finishes what is under way.
#pragma once

#include <memory>
#include <optional>

#include "yoke/comm/communicator.h"
#include "yoke/parallel/pipeline/gradient_exchange.h"
#include "yoke/parallel/pipeline/interpreter.h"
#include "yoke/parallel/pipeline/late_updates.h"
#include "yoke/parallel/pipeline/news.h"
#include "yoke/parallel/strategy.h"

namespace yoke::parallel {

// A rank's part of a model: which tensors it holds, and its weights in versions. Made before the optimizer,
// which gets versions.newest().
struct PipelineStage {
  // Gives back what other stages hold. Throws ConfigError where the world has another number of ranks.
  PipelineStage(const models::Model& model, PipelineLayout layout, comm::Communicator& comm);

  comm::Communicator& world;
  PipelineLayout layout;
  PipelinePlace place;
  std::vector<OwnedTensor> tensors;  // of the whole model
  WeightVersions versions;
};

struct PipelineStrategyOptions {
  StageRunnerOptions runner;
  double clip_norm = 0;
  // Without a flush: updates whose gradients are not finite on some stage are left out on all of them.
  bool skip_non_finite = false;
  // Brings an input to the device, in the format the model's weights have.
  std::function<torch::Tensor(const torch::Tensor&)> place = [](const torch::Tensor& input) { return input; };
};

class PipelineStrategy : public Strategy {
 public:
  // Collective. All must outlive the strategy. Throws ConfigError for what needs to know the gradients of all
  // stages in time (fp16, skip_non_finite) with a schedule that does not.
  PipelineStrategy(const models::Model& model, PipelineStage& stage, optim::Optimizer& optimizer,
                   optim::GradScaler& scaler, PipelineStrategyOptions options);

  void acquire() override;
  ComputeResult compute(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target,
                        const MicroBatch& micro) override;
  StepNews agree(const StepNews& here) override;
  void settle() override;
  void share_buffers() override;
  void drain() override;
  std::optional<Communication> communication() const override { return communication_; }
  CommitResult commit(const CommitOptions& options) override;
  std::optional<std::string> first_non_finite_gradient() override;
  std::optional<double> loss_scale() const override;

  // The model's outputs for one batch, on the ranks of the last stage; nothing elsewhere. In evaluation mode.
  std::vector<torch::Tensor> evaluate(const std::vector<torch::Tensor>& inputs);

  // What this rank did in the last step.
  const std::vector<PipelineEvent>& events() const { return events_; }
  // And in the drain() after it, where that had something to finish.
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
  PipelineStage& stage_;
  optim::Optimizer& optimizer_;
  optim::GradScaler& scaler_;
  PipelineStrategyOptions options_;
  bool flushes_;
  Transfers transfers_;
  StageRunner runner_;
  Interpreter interpreter_;
  GradientExchange gradients_;
  std::optional<LateUpdates> late_;  // where updates wait for the norm of all stages
  NewsExchange news_;
  plan::ScheduleStream stream_;
  double lr_ = 0;
  bool half_way_ = false;  // in a step, or one has failed
  bool last_ = true;       // micro-batch of the step: gradients are summed behind it
  std::optional<Communication> communication_;
  std::vector<PipelineEvent> events_, drained_;
};

}  // namespace yoke::parallel
