#include "yoke/parallel/pipeline/pipeline_strategy.h"

#include <torch/utils.h>

#include <cmath>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/base/shared_item.h"
#include "yoke/comm/tensors/tensors.h"
#include "yoke/kernels/clip_factor.h"
#include "yoke/optim/clip.h"
#include "yoke/optim/finite.h"
#include "yoke/plan/schedules/orders.h"

namespace yoke::parallel {
namespace {

using plan::ScheduleKind;
using plan::ScheduleOp;

constexpr int64_t kNameBytes = 256;

std::vector<optim::NamedTensor> held_parameters(const std::vector<OwnedTensor>& tensors, int stage) {
  std::vector<optim::NamedTensor> held;
  for (const OwnedTensor& one : tensors)
    if (one.is_parameter && one.held_by(stage)) held.emplace_back(one.name, one.tensor);
  return held;
}

std::vector<OwnedTensor> keep_own(std::vector<OwnedTensor> tensors, int stage) {
  release_others(tensors, stage);
  return tensors;
}

PipelinePlace checked_place(const PipelineLayout& layout, const comm::Communicator& comm) {
  if (layout.ranks() != comm.size())
    throw ConfigError("a pipeline of {} ranks ({} stages) with {}: start as many, with --nproc {}.",
                      layout.ranks(), layout.request.stages, comm.size(), layout.ranks());
  return layout.place_of(comm.rank());
}

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

std::vector<int64_t> shape_signature(const std::vector<torch::Tensor>& inputs, int64_t rows, bool training) {
  std::vector<int64_t> shape = {training ? 1 : 0, rows};
  for (const torch::Tensor& one : inputs)
    shape.insert(shape.end(), one.sizes().begin() + (one.dim() > 0 ? 1 : 0), one.sizes().end());
  return shape;
}

}  // namespace

PipelineStage::PipelineStage(const models::Model& model, PipelineLayout made, comm::Communicator& comm)
    : world(comm),
      layout(std::move(made)),
      place(checked_place(layout, comm)),
      tensors(keep_own(owned_tensors(model, layout), place.stage)),
      versions(held_parameters(tensors, place.stage), !plan::flushes(layout.request.kind)) {}

PipelineStrategy::PipelineStrategy(const models::Model& model, PipelineStage& stage,
                                   optim::Optimizer& optimizer, optim::GradScaler& scaler,
                                   PipelineStrategyOptions options)
    : model_(model),
      stage_(stage),
      optimizer_(optimizer),
      scaler_(scaler),
      options_(std::move(options)),
      flushes_(plan::flushes(stage.layout.request.kind)),
      transfers_(stage.world, options_.runner.device),
      runner_(model, scaler, stage.layout, stage.place.stage, options_.runner),
      interpreter_(stage.layout, stage.place, runner_, stage.versions, transfers_),
      gradients_(stage.world, stage.layout, stage.tensors),
      news_(stage.world, 1 + (stage.layout.workers() - 1) / stage.layout.request.microbatches),
      stream_(stage.layout.request, stage.place.worker) {
  if (flushes_) return;
  check_without_flush(stage, options_, scaler.current_scale() != 1.0);
  bool wants_norm = options_.clip_norm > 0 || options_.skip_non_finite;
  if (wants_norm && norm_comes_in_time(stage.layout.request)) late_.emplace(stage.world, options_.clip_norm);
}

void PipelineStrategy::acquire() {
  if (flushes_) optimizer_.zero_grad();
  communication_ = Communication{};
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
  // Other stages have micro-batches of it, and would take those of a second try for the next ones.
  if (half_way_)
    throw CommError(
        "stage {} (rank {}): a step has failed here half-way, and cannot be repeated. Stop all ranks and "
        "resume "
        "from the last checkpoint.",
        stage_.place.stage, stage_.world.rank());
  lr_ = micro.lr;
  MicroBatches batch = cut(inputs, target, micro.weight);
  half_way_ = true;
  ComputeResult result;
  last_ = micro.last;
  result.loss = interpreter_.run(stream_.next(), batch, updates());
  if (flushes_) transfers_.settle();
  double summing = flushes_ && micro.last ? gradients_.finish() : 0;
  result.forward_seconds = interpreter_.seconds(ScheduleOp::kForward);
  result.backward_seconds =
      interpreter_.seconds(ScheduleOp::kBackward) + interpreter_.seconds(ScheduleOp::kWeight);
  double waited = transfers_.waited() + summing;
  communication_->seconds += waited;
  communication_->exposed += waited;
  result.backward_seconds += waited;  // the engine takes the exposed part out again
  events_ = interpreter_.events();
  drained_.clear();
  half_way_ = false;
  return result;
}

// Schedules that flush update in commit(), when all have heard of overflows and the norm.
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

// Without a flush commit() is too early to know: what is skipped is told here.
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
  auto complete = [this](int chunk) {  // without a flush the update follows at once
    if (flushes_ && last_) gradients_.begin(chunk);
  };
  return {[this](const auto& action) { update(action); }, need, complete};
}

// Replicas of a stage have statistics of their own batches; its first rank's are saved.
void PipelineStrategy::share_buffers() {
  NamedTensors buffers;
  for (const OwnedTensor& one : stage_.tensors)
    if (!one.is_parameter && one.held_by(stage_.place.stage)) buffers.emplace_back(one.name, one.tensor);
  gradients_.give_to_stage(buffers);
}

void PipelineStrategy::drain() {
  if (flushes_) return;
  interpreter_.run(stream_.drain(), {}, updates());
  while (late_ && late_->waiting() > 0) take_late();
  drained_.insert(drained_.end(), interpreter_.events().begin(), interpreter_.events().end());
  transfers_.settle();
  stage_.versions.start_anew();
}

StepNews PipelineStrategy::agree(const StepNews& here) {
  double copies = stage_.layout.copies;
  if (!flushes_) {
    NewsExchange::Heard heard = news_.tell(here.loss.item<double>() / copies, here.stop_signal);
    return {heard.loss, heard.stop_signal};
  }
  double stops = here.stop_signal != 0 ? 1 : 0;
  torch::Tensor told = torch::tensor({0.0, static_cast<double>(here.stop_signal), stops}, torch::kFloat64);
  told = told.to(options_.runner.device);
  told[0] = here.loss.to(torch::kFloat64);
  comm::all_reduce(stage_.world, told, ReduceOp::kSum, "loss and stop");
  StepNews all;
  all.loss = told[0] / copies;
  torch::Tensor host = told.cpu();
  const double* sums = host.const_data_ptr<double>();
  if (sums[2] > 0) all.stop_signal = static_cast<int>(std::lround(sums[1] / sums[2]));
  return all;
}

void PipelineStrategy::settle() {
  // A stage that shares a weight waits in its update for the other's, which may come only with later batches.
  if (!flushes_ && gradients_.ties()) drain();
  news_.settle();
}

CommitResult PipelineStrategy::commit(const CommitOptions& commit) {
  if (!flushes_) return {};
  CommitResult result;
  bool scales = scaler_.current_scale() != 1.0 || options_.runner.precision == Precision::kFp16;
  bool finite = scaler_.unscale(gradients_.parameters());
  if (scales || options_.clip_norm > 0 || commit.measure_norm) {
    GradientExchange::Judgement all = gradients_.judge(!finite);
    finite = !all.overflow;
    if (scales) scaler_.set_found_inf(all.overflow);
    if (finite && commit.measure_norm) {
      result.grad_norm = all.norm;
      finite = std::isfinite(all.norm);
    }
    if (finite && options_.clip_norm > 0) {
      torch::NoGradGuard no_grad;
      double factor = kernels::clip_factor(all.norm, options_.clip_norm);
      for (const torch::Tensor& parameter : gradients_.parameters())
        if (factor < 1 && parameter.grad().defined()) parameter.grad().mul_(factor);
    }
  }
  if (finite) optimizer_.step(commit.lr);
  scaler_.update();
  result.updated = finite;
  return result;
}

// Every stage knows of its own gradients; the first stage that has one speaks for all.
std::optional<std::string> PipelineStrategy::first_non_finite_gradient() {
  std::vector<optim::NamedTensor> own = held_parameters(stage_.tensors, stage_.place.stage);
  std::string name = optim::first_non_finite_gradient(own).value_or("").substr(0, kNameBytes - 1);
  torch::Tensor bytes = torch::zeros({1, kNameBytes}, torch::kUInt8);
  std::copy(name.begin(), name.end(), bytes.data_ptr<uint8_t>());
  torch::Tensor all =
      comm::all_gather(stage_.world, bytes.to(options_.runner.device), "parameter that is not finite").cpu();
  for (int64_t rank = 0; rank < all.size(0); ++rank) {
    const auto* text = reinterpret_cast<const char*>(all[rank].const_data_ptr<uint8_t>());
    if (*text != 0) return std::string(text);
  }
  return std::nullopt;
}

std::optional<double> PipelineStrategy::loss_scale() const {
  if (options_.runner.precision != Precision::kFp16) return std::nullopt;
  return scaler_.current_scale();
}

std::vector<torch::Tensor> PipelineStrategy::evaluate(const std::vector<torch::Tensor>& inputs) {
  return interpreter_.evaluate(inputs, shape_signature(inputs, inputs.at(0).size(0), /*training=*/false));
}

}  // namespace yoke::parallel
