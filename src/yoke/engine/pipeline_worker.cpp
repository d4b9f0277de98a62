#include "yoke/engine/pipeline_worker.h"

#include <torch/utils.h>

#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/data/dataset.h"
#include "yoke/engine/run_state.h"
#include "yoke/parallel/ddp/sync_batchnorm.h"
#include "yoke/parallel/pipeline/gather.h"
#include "yoke/parallel/pipeline/pipeline_strategy.h"
#include "yoke/plan/schedules/orders.h"

namespace yoke::engine {
namespace {

// The same on every rank: it decides where the model is cut.
std::vector<double> estimated_costs(const Worker& worker) {
  data::DataOptions data;
  data.samples = 1;
  std::vector<int64_t> first = {0};
  models::Tensors inputs =
      data::open(data, data::Split::kTrain, worker.model.sample, /*seed=*/1)->gather(first).inputs;
  for (torch::Tensor& input : inputs) input = worker.place(input);
  return parallel::estimate_block_costs(worker.model, inputs);
}

void tell_stages(const models::Model& model, const parallel::PipelineLayout& layout) {
  std::string text;
  for (const parallel::BlockRange& range : layout.blocks) {
    const std::string &first = model.blocks[range.first].name, &last = model.blocks[range.end - 1].name;
    text += (text.empty() ? "" : ", ") + (first == last ? first : first + " to " + last);
  }
  log::info("pipeline: {} micro-batches, {}: {}", layout.request.microbatches,
            plan::to_string(layout.request.kind), text);
}

}  // namespace

void make_stage(Worker& worker, const WorkerOptions& options) {
  const PipelineSetup& setup = options.pipeline;
  if (options.optimizer.optimizer == "lbfgs")
    throw ConfigError(
        "train.optimizer = \"lbfgs\" with parallel.pipeline = {}: it runs the model again and "
        "again. Use sgd or adamw.",
        setup.stages);
  if (options.accumulate > 1 && !plan::flushes(plan::parse_schedule_kind(setup.options.schedule)))
    throw ConfigError(
        "train.accumulate = {} with pipeline.schedule = \"{}\": it updates as micro-batches come. Set "
        "pipeline.microbatches instead.",
        options.accumulate, setup.options.schedule);
  parallel::PipelineLayout layout = parallel::make_layout(
      setup.options, setup.stages, setup.copies, estimated_costs(worker), options.batch_size, setup.replicas);
  if (setup.world->rank() == 0) tell_stages(worker.model, layout);
  worker.stage = std::make_unique<parallel::PipelineStage>(worker.model, std::move(layout), *setup.world);
}

void make_pipeline(Worker& worker, const WorkerOptions& options, std::vector<compute::Segment> segments) {
  const PipelineSetup& setup = options.pipeline;
  if (options.sync_batchnorm && setup.copies > 1) {
    worker.norms = setup.world->split(worker.stage->place.stage, setup.world->rank(), "norms");
    convert_sync_batchnorm(*worker.model.module, *worker.norms);
  }
  parallel::PipelineStrategyOptions strategy;
  strategy.runner = {worker.device, worker.autocast, std::move(segments)};
  strategy.clip_norm = options.optimizer.clip_norm;
  strategy.skip_non_finite = options.skip_non_finite;
  strategy.place = worker.place;
  auto pipeline = std::make_unique<parallel::PipelineStrategy>(worker.model, *worker.stage, *worker.optimizer,
                                                               worker.scaler, std::move(strategy));
  worker.pipeline = pipeline.get();
  worker.strategy = std::move(pipeline);
}

bool needs_samples(const Worker& worker) {
  if (!worker.stage) return true;
  int stage = worker.stage->place.stage;
  return stage == 0 || stage + 1 == worker.stage->layout.request.stages;
}

std::vector<optim::NamedTensor> whole_model(const Worker& worker) {
  return worker.stage ? parallel::gather_model(*worker.stage) : named_tensors(*worker.model.module);
}

}  // namespace yoke::engine
