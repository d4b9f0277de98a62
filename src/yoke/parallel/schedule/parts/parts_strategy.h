// One part of a graph on this rank: one pass over its nodes, forward and backward, for each batch.
//
// Equal to one device: gradients travel back along the edges that activations took, replicas of the parts
// (the data axis) average them, and all ranks update together.
#pragma once

#include <functional>
#include <memory>

#include "yoke/parallel/common/part_strategy.h"
#include "yoke/parallel/schedule/parts/part_runner.h"

namespace yoke::parallel {

struct PartsOptions {
  PartRunnerOptions runner;
  double clip_norm = 0;
  PartShards shards;          // as in PartOptions
  std::string hook = "none";  // likewise
  // Brings an input to the device, in the format the model's weights have.
  std::function<torch::Tensor(const torch::Tensor&)> place = [](const torch::Tensor& input) { return input; };
};

// A pipeline's layout with a part in place of each stage.
PipelineLayout layout_of_parts(int parts, int copies);

class PartsStrategy : public PartStrategy {
 public:
  // Collective. All must outlive the strategy. `stage` has the layout of layout_of_parts().
  PartsStrategy(const models::Model& model, const GraphParts& parts, PipelineStage& stage,
                optim::Optimizer& optimizer, optim::GradScaler& scaler, PartsOptions options);

  ComputeResult compute(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target,
                        const MicroBatch& micro) override;
  DataShare share() const override;
  RunEnd finish(int64_t peak_memory) override;
  nlohmann::json layout() const override;
  // Outputs are on the ranks of the part with the loss.
  std::vector<torch::Tensor> forward(const std::vector<torch::Tensor>& inputs) override;

  // What this rank did and sent in the last pass.
  const PartRunner& runner() const { return runner_; }

 private:
  bool has_loss() const { return stage_.place.stage == parts_.last_part(); }
  bool reads() const { return parts_.reads_batch(stage_.place.stage); }

  const GraphParts& parts_;
  PartsOptions options_;
  Transfers transfers_;
  PartRunner runner_;
};

}  // namespace yoke::parallel
