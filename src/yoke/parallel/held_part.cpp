#include "yoke/parallel/held_part.h"

#include "yoke/parallel/common/ddp/sync_batchnorm.h"
#include "yoke/parallel/placement/stage/stage_state.h"
#include "yoke/parallel/sync/sharded/check_sharded.h"

namespace yoke::parallel {

HeldPart::HeldPart(Kit& kit, const MakeOptions& options)
    : kit_(kit), options_(options), world_(*options.links.world) {}

void HeldPart::hold(std::unique_ptr<PipelineStage> stage, const std::string& role) {
  stage_ = std::move(stage);
  if (options_.links.job != nullptr) options_.links.job->take_role(role);
  if (options_.parallel.zero == 0) return;
  check_sharded(kit_, options_);
  const int part = stage_->place.stage;
  replicas_ = world_.split(part, world_.rank(), "replicas");
  NamedTensors buffers;
  for (const OwnedTensor& one : stage_->tensors)
    if (!one.is_parameter && one.held_by(part)) buffers.emplace_back(one.name, one.tensor);
  shards_ =
      std::make_unique<Shards>(held_parameters(stage_->tensors, part), buffers, *replicas_, options_.ddp);
}

void HeldPart::share_norms() {
  if (!options_.sync_batchnorm || stage_->layout.copies == 1) return;
  norms_ = world_.split(stage_->place.stage, world_.rank(), "norms");
  convert_sync_batchnorm(*kit_.model.module, *norms_);
}

std::vector<optim::NamedTensor> HeldPart::parameters() {
  return shards_ ? shards_->owned() : stage_->versions.newest();
}

std::vector<StatePiece> HeldPart::optimizer_state() {
  return stage_state(*stage_, kit_.optimizer->state(), shards_.get());
}

}  // namespace yoke::parallel
