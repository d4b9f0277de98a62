#include <torch/utils.h>

#include <algorithm>

#include "yoke/base/log.h"
#include "yoke/parallel/held_part.h"
#include "yoke/parallel/schedule/parts/parts_strategy.h"

namespace yoke::parallel {
namespace {

// One sample through the whole graph: a node that asks for what it does not get is named before training.
void try_graph(const Kit& kit, const MakeOptions& options, const models::Graph& graph) {
  torch::NoGradGuard no_grad;
  const bool was_training = kit.model.module->is_training();
  kit.model.module->eval();
  models::Tensors inputs = options.sample_inputs();
  for (torch::Tensor& input : inputs) input = kit.place(input);
  models::run_graph(graph, inputs);
  kit.model.module->train(was_training);
}

class GraphPartMaker : public HeldPart {
 public:
  GraphPartMaker(Kit& kit, const MakeOptions& options)
      : HeldPart(kit, options),
        parts_(make_parts(kit.model, options.node_parts, static_cast<int>(options.parallel.pipeline))) {
    if (options.sample_inputs) try_graph(kit, options, parts_.graph);
    if (world_.rank() == 0) log::info("partition: {}", to_string(parts_));
    auto part = std::make_unique<PipelineStage>(
        owned_tensors(kit.model, parts_),
        layout_of_parts(parts_.parts, std::max(1, world_.size() / parts_.parts)), world_);
    const std::string role = fmt::format("part {} of the graph", part->place.stage);
    hold(std::move(part), role);
  }

  std::unique_ptr<Strategy> strategy() override {
    share_norms();
    PartsOptions options;
    options.runner = {
        kit_.device, kit_.autocast,
        std::ranges::any_of(kit_.segments, [](const compute::Segment& one) { return one.recompute; })};
    options.clip_norm = options_.optimizer.clip_norm;
    options.place = kit_.place;
    options.shards = shards();
    options.hook = options_.ddp.hook;
    return std::make_unique<PartsStrategy>(kit_.model, parts_, *stage_, *kit_.optimizer, kit_.scaler,
                                           std::move(options));
  }

 private:
  GraphParts parts_;
};

}  // namespace

std::shared_ptr<Maker> place_graph_part(Kit& kit, const MakeOptions& options) {
  return std::make_shared<GraphPartMaker>(kit, options);
}

}  // namespace yoke::parallel
