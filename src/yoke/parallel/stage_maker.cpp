#include <numeric>

#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/parallel/held_part.h"
#include "yoke/parallel/schedule/pipeline/pipeline_strategy.h"
#include "yoke/plan/schedules/orders.h"

namespace yoke::parallel {
namespace {

void log_stages(const models::Model& model, const PipelineLayout& layout) {
  std::string text;
  for (const BlockRange& range : layout.blocks) {
    const std::string &first = model.blocks[range.first].name, &last = model.blocks[range.end - 1].name;
    text += (text.empty() ? "" : ", ") + (first == last ? first : first + " to " + last);
  }
  log::info("pipeline: {} micro-batches, {}: {}", layout.request.microbatches,
            plan::to_string(layout.request.kind), text);
}

class StageMaker : public HeldPart {
 public:
  StageMaker(Kit& kit, const MakeOptions& options) : HeldPart(kit, options) {
    check_schedule();
    const auto stages = static_cast<int>(options.parallel.pipeline);
    int workers = stages;
    if (!options.stage_replicas.empty())
      workers = std::accumulate(options.stage_replicas.begin(), options.stage_replicas.end(), 0);
    models::Tensors inputs = options.sample_inputs();
    for (torch::Tensor& input : inputs) input = kit.place(input);
    PipelineLayout layout =
        make_layout(options.pipeline, stages, std::max(1, world_.size() / workers),
                    estimate_block_costs(kit.model, inputs), options.batch_size, options.stage_replicas);
    if (world_.rank() == 0) log_stages(kit.model, layout);
    auto stage = std::make_unique<PipelineStage>(kit.model, std::move(layout), world_);
    const std::string role = fmt::format("pipeline stage {}", stage->place.stage);
    hold(std::move(stage), role);
  }

  std::unique_ptr<Strategy> strategy() override {
    share_norms();
    PipelineStrategyOptions options;
    options.runner = {kit_.device, kit_.autocast, kit_.segments};
    options.clip_norm = options_.optimizer.clip_norm;
    options.skip_non_finite = options_.skip_non_finite;
    options.place = kit_.place;
    options.slices = options_.slices;
    options.shards = shards();
    options.hook = options_.ddp.hook;
    return std::make_unique<PipelineStrategy>(model(), *stage_, *kit_.optimizer, kit_.scaler,
                                              std::move(options));
  }

 private:
  void check_schedule() const {
    if (options_.parallel.zero == 3 && !options_.stage_replicas.empty())
      throw ConfigError(
          "parallel.zero = 3 with parallel.plan: ranks that replicate one stage take different "
          "micro-batches, "
          "and would gather different blocks. Use parallel.zero = 2, or set parallel.pipeline and "
          "pipeline.stages.");
    if (plan::flushes(plan::parse_schedule_kind(options_.pipeline.schedule))) return;
    if (options_.accumulate > 1)
      throw ConfigError(
          "train.accumulate = {} with pipeline.schedule = \"{}\": it updates as micro-batches come. Set "
          "pipeline.microbatches instead.",
          options_.accumulate, options_.pipeline.schedule);
    if (options_.parallel.zero > 0)
      throw ConfigError(
          "parallel.zero = {} with pipeline.schedule = \"{}\": it keeps several versions of the weights. Use "
          "1f1b, or set parallel.zero = 0.",
          options_.parallel.zero, options_.pipeline.schedule);
  }
};

}  // namespace

std::shared_ptr<Maker> place_stage(Kit& kit, const MakeOptions& options) {
  return std::make_shared<StageMaker>(kit, options);
}

}  // namespace yoke::parallel
