#include "yoke/parallel/common/part_strategy.h"

#include <torch/utils.h>

#include <cmath>

#include "yoke/base/error.h"
#include "yoke/comm/tensors/tensors.h"
#include "yoke/kernels/clip_factor.h"
#include "yoke/optim/averaging.h"
#include "yoke/optim/finite.h"
#include "yoke/parallel/common/step_news.h"

namespace yoke::parallel {
namespace {

constexpr int64_t kNameBytes = 256;

}  // namespace

PartStrategy::PartStrategy(PipelineStage& stage, optim::Optimizer& optimizer, optim::GradScaler& scaler,
                           PartOptions options)
    : stage_(stage),
      optimizer_(optimizer),
      scaler_(scaler),
      gradients_(stage.world, stage.layout, stage.tensors, options.slices, options.shards, options.hook),
      part_options_(std::move(options)) {}

void PartStrategy::await_parameters() {
  part_options_.shards.await_parameters();
}

void PartStrategy::begin_pass() {
  if (half_way_)
    throw CommError(
        "stage {} (rank {}): a step has failed here half-way, and cannot be repeated. Stop all ranks and "
        "resume from the last checkpoint.",
        stage_.place.stage, stage_.world.rank());
  half_way_ = true;
}

void PartStrategy::note_waited(double seconds) {
  communication_->seconds += seconds;
  communication_->exposed += seconds;
  if (part_options_.shards.fully != nullptr) note_times(*part_options_.shards.fully, *communication_);
}

void PartStrategy::start_step(bool forget_gradients) {
  if (forget_gradients) optimizer_.zero_grad();
  await_parameters();
  part_options_.shards.forget_gradients();
  communication_ = Communication{};
}

// Replicas of a part have statistics of their own batches; its first rank's are saved.
void PartStrategy::share_buffers() {
  NamedTensors buffers;
  for (const OwnedTensor& one : stage_.tensors)
    if (!one.is_parameter && one.held_by(stage_.place.stage)) buffers.emplace_back(one.name, one.tensor);
  gradients_.give_to_stage(buffers);
}

StepNews PartStrategy::agree(const StepNews& here) {
  return reduce_news(here, stage_.world, part_options_.device, stage_.layout.copies);
}

CommitResult PartStrategy::commit(const CommitOptions& commit) {
  CommitResult result;
  bool scales = scaler_.current_scale() != 1.0 || part_options_.precision == Precision::kFp16;
  bool finite = scaler_.unscale(gradients_.parameters());
  if (scales || part_options_.clip_norm > 0 || commit.measure_norm) {
    GradientExchange::Judgement all = gradients_.judge(!finite);
    finite = !all.overflow;
    if (scales) scaler_.set_found_inf(all.overflow);
    if (finite && commit.measure_norm) {
      result.grad_norm = all.norm;
      finite = std::isfinite(all.norm);
    }
    if (finite && part_options_.clip_norm > 0) {
      torch::NoGradGuard no_grad;
      double factor = kernels::clip_factor(all.norm, part_options_.clip_norm);
      for (const torch::Tensor& parameter : gradients_.parameters())
        if (factor < 1 && parameter.grad().defined()) parameter.grad().mul_(factor);
    }
  }
  if (finite) {
    optimizer_.step(commit.lr);
    part_options_.shards.share_updates();
  }
  scaler_.update();
  result.updated = finite;
  return result;
}

// Every part knows of its own gradients; the first that has one speaks for all.
std::optional<std::string> PartStrategy::first_non_finite_gradient() {
  const PartShards& shards = part_options_.shards;
  std::vector<optim::NamedTensor> own = shards ? shards.source().owned  // "conv1.weight@0:12"
                                               : trained_parameters(stage_.tensors, stage_.place.stage);
  std::string name = optim::first_non_finite_gradient(own).value_or("");
  if (shards) name = name.substr(0, name.rfind('@'));
  name = name.substr(0, kNameBytes - 1);
  torch::Tensor bytes = torch::zeros({1, kNameBytes}, torch::kUInt8);
  std::copy(name.begin(), name.end(), bytes.data_ptr<uint8_t>());
  torch::Tensor all =
      comm::all_gather(stage_.world, bytes.to(part_options_.device), "parameter that is not finite").cpu();
  for (int64_t rank = 0; rank < all.size(0); ++rank) {
    const auto* text = reinterpret_cast<const char*>(all[rank].const_data_ptr<uint8_t>());
    if (*text != 0) return std::string(text);
  }
  return std::nullopt;
}

std::optional<double> PartStrategy::loss_scale() const {
  if (part_options_.precision != Precision::kFp16) return std::nullopt;
  return scaler_.current_scale();
}

void PartStrategy::begin(int64_t) {
  stage_.world.barrier({.name = "start"}).wait();
}

bool PartStrategy::exchange_average() {
  await_parameters();
  part_options_.shards.release();
  stage_.world.barrier({.name = "moving average"}).wait();
  if (!optim::exchange_average(optimizer_)) return false;
  part_options_.shards.share_updates();
  await_parameters();
  stage_.world.barrier({.name = "moving average"}).wait();
  return true;
}

std::vector<StatePiece> PartStrategy::state() {
  await_parameters();
  return stage_state(stage_, optimizer_.state(), part_options_.shards);
}

std::vector<StatePiece> PartStrategy::gradients() {
  return stage_gradients(stage_, part_options_.shards);
}

}  // namespace yoke::parallel
