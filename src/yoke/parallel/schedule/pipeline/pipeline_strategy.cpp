#include "yoke/parallel/schedule/pipeline/pipeline_strategy.h"

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/base/shared_item.h"
#include "yoke/parallel/schedule/pipeline/replay.h"
#include "yoke/parallel/schedule/pipeline/timeline.h"
#include "yoke/plan/schedules/orders.h"

namespace yoke::parallel {
namespace {

using plan::ScheduleKind;
using plan::ScheduleOp;

void check_without_flush(const PipelineStage& stage, const PipelineStrategyOptions& options, bool scales) {
  const char* name = plan::to_string(stage.layout.request.kind);
  bool each = options.clip_norm > 0 && !norm_comes_in_time(stage.layout.request);
  if (each && stage.world.rank() == 0)
    log::warn(
        "pipeline.schedule = \"{}\": a stage updates before the first one has its gradient, so each clips by "
        "its own norm to train.clip_norm = {}. Take 2bw or pipeline.vertical_sync to clip by that of all.",
        name, options.clip_norm);
  if (scales)
    throw ConfigError(
        "train.precision = \"fp16\" with pipeline.schedule = \"{}\": an overflow cannot be skipped on all "
        "stages. Use bf16, or 1f1b.",
        name);
  if (options.skip_non_finite && !norm_comes_in_time(stage.layout.request))
    throw ConfigError(
        "train.non_finite = \"skip\" with pipeline.schedule = \"{}\": a stage updates before the first one "
        "has "
        "its gradient, so an update cannot be skipped on all stages. Use 2bw, pipeline.vertical_sync or "
        "1f1b.",
        name);
}

StageRunnerOptions runner_options(const PipelineStrategyOptions& options) {
  StageRunnerOptions runner = options.runner;
  runner.after_weights = [shards = options.shards] { shards.reduce_rest(); };
  return runner;
}

}  // namespace

PipelineStrategy::PipelineStrategy(const models::Model& model, PipelineStage& stage,
                                   optim::Optimizer& optimizer, optim::GradScaler& scaler,
                                   PipelineStrategyOptions options)
    : PartStrategy(stage, optimizer, scaler,
                   {options.runner.device, options.runner.precision, options.clip_norm, options.slices,
                    options.shards, options.hook}),
      model_(model),
      options_(std::move(options)),
      flushes_(plan::flushes(stage.layout.request.kind)),
      transfers_(stage.world, options_.runner.device),
      runner_(model, scaler, stage.layout, stage.place.stage, runner_options(options_)),
      interpreter_(stage.layout, stage.place, runner_, stage.versions, transfers_),
      news_(stage.world, 1 + (stage.layout.workers() - 1) / stage.layout.request.microbatches),
      stream_(stage.layout.request, stage.place.worker) {
  if (flushes_) return;
  check_without_flush(stage, options_, scaler.current_scale() != 1.0);
  bool wants_norm = options_.clip_norm > 0 || options_.skip_non_finite;
  if (wants_norm && norm_comes_in_time(stage.layout.request)) late_.emplace(stage.world, options_.clip_norm);
}

// Parts differ by a sample at most; each counts by its samples, so that together they are the batch's mean.
// Where the batch has fewer samples than parts, several parts have the same sample and share its weight.
MicroBatches PipelineStrategy::cut(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target,
                                   double weight) {
  const plan::ScheduleRequest& request = stage_.layout.request;
  bool each = request.kind == ScheduleKind::kPipedream;  // every part is a minibatch of its own
  int64_t samples = target.size(0), parts = request.microbatches;
  bool first = stage_.place.stage == 0, last = is_last_stage();
  MicroBatches batch;
  batch.first = flushes_ ? 0 : stream_.minibatches() * request.microbatches;
  for (int64_t i = 0; i < parts; ++i) {
    int64_t begin = samples * i / parts, rows = samples * (i + 1) / parts - begin;
    double holders = 1;
    if (samples < parts) {
      SharedItem own = shared_item(samples, i, parts);
      begin = own.item;
      rows = 1;
      holders = static_cast<double>(own.holders);
    }
    MicroBatches::Part part;
    part.share = static_cast<double>(rows) / static_cast<double>(samples) / holders;
    part.weight = weight / stage_.layout.copies * (each ? 1.0 / holders : part.share);
    part.shape = shape_signature(inputs, rows, /*training=*/true);
    for (const torch::Tensor& input : inputs)
      if (first) part.inputs.push_back(options_.place(input.narrow(0, begin, rows)));
    if (last) part.target = target.narrow(0, begin, rows).to(options_.runner.device, /*non_blocking=*/true);
    batch.parts.push_back(std::move(part));
  }
  return batch;
}

ComputeResult PipelineStrategy::compute(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target,
                                        const MicroBatch& micro) {
  if (!flushes_ && !micro.last)
    throw ConfigError("train.accumulate with pipeline.schedule = \"{}\": set pipeline.microbatches instead.",
                      plan::to_string(stage_.layout.request.kind));
  lr_ = micro.lr;
  MicroBatches batch = cut(inputs, target, micro.weight);
  begin_pass();
  ComputeResult result;
  last_ = micro.last;
  result.loss = interpreter_.run(stream_.next(), batch, updates());
  if (flushes_) transfers_.settle();
  double summing = flushes_ && micro.last ? gradients_.finish() : 0;
  result.forward_seconds = interpreter_.seconds(ScheduleOp::kForward);
  result.backward_seconds =
      interpreter_.seconds(ScheduleOp::kBackward) + interpreter_.seconds(ScheduleOp::kWeight);
  double waited = transfers_.waited() + summing;
  note_waited(waited);
  result.backward_seconds += waited;  // the engine takes the exposed part out again
  events_ = interpreter_.events();
  drained_.clear();
  end_pass();
  return result;
}

// Schedules with a flush update in commit(), when overflows and the norm are known to all.
void PipelineStrategy::update(const plan::StreamAction& action) {
  if (flushes_) return;
  const plan::ScheduleRequest& request = stage_.layout.request;
  gradients_.finish();
  if (options_.clip_norm > 0 && !late_) gradients_.clip_each(options_.clip_norm);
  double square = late_ ? gradients_.square() : 0;
  LateUpdates::Update update{stage_.versions.take_gradients(), !action.last_use, lr_};
  bool each = request.kind == ScheduleKind::kPipedream;
  if (each && request.replicas_of(0) > 1) update.lr /= request.replicas_of(0);
  late_ ? late_->add(std::move(update), square) : apply(std::move(update));
}

// Without a flush commit() is too early to know: skipped updates are logged here.
void PipelineStrategy::take_late() {
  int64_t before = late_->dropped();
  apply(late_->take());
  if (late_->dropped() > before && stage_.world.rank() == 0)
    log::warn("the gradients of an update are not finite; it is skipped");
}

void PipelineStrategy::apply(LateUpdates::Update update) {
  stage_.versions.begin_update(update.keep, std::move(update.gradients));
  optimizer_.step(update.lr);
  optimizer_.zero_grad();
  stage_.versions.end_update();
}

Interpreter::Updates PipelineStrategy::updates() {
  auto need = [this](int version) {
    while (late_ && stage_.versions.newest_version() < version && late_->waiting() > 0) take_late();
  };
  auto complete = [this](int chunk) {  // without a flush the update follows immediately
    if (flushes_ && last_) gradients_.begin(chunk);
  };
  return {[this](const auto& action) { update(action); }, need, complete};
}

void PipelineStrategy::drain() {
  await_parameters();
  if (flushes_) return;
  interpreter_.run(stream_.drain(), {}, updates());
  while (late_ && late_->waiting() > 0) take_late();
  drained_.insert(drained_.end(), interpreter_.events().begin(), interpreter_.events().end());
  transfers_.settle();
  stage_.versions.start_anew();
}

StepNews PipelineStrategy::agree(const StepNews& here) {
  if (flushes_) return PartStrategy::agree(here);
  NewsExchange::Heard heard = news_.tell(here.loss.item<double>() / stage_.layout.copies, here.stop_signal);
  return {heard.loss, heard.stop_signal};
}

void PipelineStrategy::settle() {
  // A stage with a tied weight blocks in its update on the other stage, which may need later batches to get
  // there: without drain() waiting for the losses here would deadlock.
  if (!flushes_ && gradients_.ties()) drain();
  news_.settle();
}

CommitResult PipelineStrategy::commit(const CommitOptions& commit) {
  return flushes_ ? PartStrategy::commit(commit) : CommitResult{};
}

// The first stage takes inputs, the last one targets.
DataShare PipelineStrategy::share() const {
  return {.part = stage_.place.copy,
          .parts = stage_.layout.copies,
          .reads = stage_.place.stage == 0 || is_last_stage(),
          .passes = stage_.layout.request.microbatches,
          .together = true};
}

std::unique_ptr<Replay> PipelineStrategy::replay(const models::Model& model,
                                                 const optim::OptimizerOptions& optimizer) const {
  if (flushes_) return nullptr;
  return std::make_unique<StaleReplay>(model, stage_.layout, optimizer);
}

nlohmann::json PipelineStrategy::layout() const {
  nlohmann::json stages = nlohmann::json::array(), ranks = nlohmann::json::array();
  const PipelineLayout& layout = stage_.layout;
  for (size_t part = 0; part < layout.blocks.size(); ++part)
    stages.push_back({{"stage", static_cast<int>(part) % layout.request.stages},
                      {"first", model_.blocks[layout.blocks[part].first].name},
                      {"last", model_.blocks[layout.blocks[part].end - 1].name}});
  for (int rank = 0; rank < layout.ranks(); ++rank) ranks.push_back(layout.stage_of_rank(rank));
  return {{"stages", stages}, {"stages_of_ranks", ranks}};
}

RunEnd PipelineStrategy::finish(int64_t peak_memory) {
  RunEnd end = Strategy::finish(peak_memory);
  end.reports.push_back({"pipeline.json", pipeline_timeline(stage_, events_).dump() + "\n"});
  return end;
}

std::vector<torch::Tensor> PipelineStrategy::forward(const std::vector<torch::Tensor>& given) {
  await_parameters();
  std::vector<torch::Tensor> inputs = given;
  for (torch::Tensor& input : inputs)
    if (stage_.place.stage == 0) input = options_.place(input);
  models::Tensors outputs =
      interpreter_.evaluate(inputs, shape_signature(inputs, inputs.at(0).size(0), /*training=*/false));
  options_.shards.release();
  return outputs;
}

}  // namespace yoke::parallel
