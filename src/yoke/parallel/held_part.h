// Makers of ranks that hold a part of the model: a stage of a pipeline, or some nodes of a graph.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "yoke/parallel/maker.h"
#include "yoke/parallel/placement/stage/stage.h"
#include "yoke/parallel/sync/sharded/shards.h"

namespace yoke::parallel {

// What they have in common: the parameters and state of a part, which its replicas shard if asked to.
class HeldPart : public Maker {
 public:
  std::vector<optim::NamedTensor> parameters() override;
  std::vector<StatePiece> optimizer_state() override;

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
  std::unique_ptr<Shards> shards_;  // null: every replica has all of the part's state

 private:
  std::unique_ptr<comm::Communicator> replicas_, norms_;
};

// As place_model(): a stage of parallel.pipeline; for parallel.partition a part of the model's graph, with
// options.node_parts saying where each node lies.
std::shared_ptr<Maker> place_stage(Kit& kit, const MakeOptions& options);
std::shared_ptr<Maker> place_graph_part(Kit& kit, const MakeOptions& options);

}  // namespace yoke::parallel
