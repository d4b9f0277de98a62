// Makers of ranks that hold a part of the model: a stage of a pipeline, or some nodes of a graph.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "yoke/parallel/common/part_shards.h"
#include "yoke/parallel/maker.h"
#include "yoke/parallel/placement/stage/stage.h"

namespace yoke::parallel {

// What they have in common: the parameters and state of a part, which its replicas shard if asked to.
class HeldPart : public Maker {
 public:
  std::vector<optim::NamedTensor> parameters() override;
  std::vector<StatePiece> optimizer_state() override;
  optim::LayerSums layer_sums() override;

 protected:
  HeldPart(Kit& kit, const MakeOptions& options);
  // `role`: of this rank in messages. Collective.
  void hold(std::unique_ptr<PipelineStage> stage, const std::string& role);
  // BatchNorm over all replicas of the part, if asked for. Collective.
  void share_norms();

  Kit& kit_;
  const MakeOptions& options_;
  comm::Communicator& world_;
  std::unique_ptr<PipelineStage> stage_;
  PartShards shards() const { return {shards_.get(), fully_.get()}; }
  // With blocks that gather what they need (ZeRO 3).
  const models::Model& model() const { return gathering_ ? *gathering_ : kit_.model; }

 private:
  void shard();

  std::unique_ptr<comm::Communicator> replicas_, norms_;
  std::unique_ptr<Shards> shards_;     // ZeRO 1, 2
  std::unique_ptr<FullyShard> fully_;  // ZeRO 3
  std::optional<models::Model> gathering_;
};

// As place_model(): a stage of parallel.pipeline; for parallel.partition a part of the model's graph, with
// options.node_parts saying where each node lies.
std::shared_ptr<Maker> place_stage(Kit& kit, const MakeOptions& options);
std::shared_ptr<Maker> place_graph_part(Kit& kit, const MakeOptions& options);

}  // namespace yoke::parallel
