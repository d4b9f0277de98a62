#include "yoke/parallel/held_part.h"

#include "yoke/parallel/common/ddp/sync_batchnorm.h"
#include "yoke/parallel/layer_sums.h"
#include "yoke/parallel/placement/stage/stage_state.h"
#include "yoke/parallel/sync/sharded/check_sharded.h"

namespace yoke::parallel {

HeldPart::HeldPart(Kit& kit, const MakeOptions& options)
    : kit_(kit), options_(options), world_(*options.links.world) {}

void HeldPart::hold(std::unique_ptr<PipelineStage> stage, const std::string& role) {
  stage_ = std::move(stage);
  if (options_.links.job != nullptr) options_.links.job->take_role(role);
  if (options_.parallel.zero > 0) shard();
}

void HeldPart::shard() {
  check_sharded(kit_, options_);
  const int part = stage_->place.stage;
  replicas_ = world_.split(part, world_.rank(), "replicas");
  ShardedPart held;
  held.parameters = held_parameters(stage_->tensors, part);
  for (const OwnedTensor& one : stage_->tensors) {
    if (!one.held_by(part)) continue;
    if (!one.is_parameter) held.buffers.emplace_back(one.name, one.tensor);
    // Cut alike on all stages that hold it, whatever else they hold.
    if (one.is_parameter && one.is_tied()) held.apart.insert(one.name);
  }
  if (options_.parallel.zero < 3) {
    shards_ = std::make_unique<Shards>(held.parameters, held.buffers, *replicas_, options_.ddp);
    return;
  }
  FullyShardOptions how = how_to_gather(kit_, options_);
  how.average = false;  // losses carry the weight of their replica
  fully_ = std::make_unique<FullyShard>(kit_.model, held, *replicas_, how);
  gathering_ = fully_->wrap(kit_.model);
}

void HeldPart::share_norms() {
  if (!options_.sync_batchnorm || stage_->layout.copies == 1) return;
  norms_ = world_.split(stage_->place.stage, world_.rank(), "norms");
  convert_sync_batchnorm(*kit_.model.module, *norms_);
}

std::vector<optim::NamedTensor> HeldPart::parameters() {
  return shards() ? shards().source().owned : stage_->versions.newest();
}

optim::LayerSums HeldPart::layer_sums() {
  return shards() ? sums_over_pieces(shards().source(), kit_.device) : optim::LayerSums();
}

std::vector<StatePiece> HeldPart::optimizer_state() {
  return stage_state(*stage_, kit_.optimizer->state(), shards());
}

}  // namespace yoke::parallel
