#include "yoke/parallel/spares.h"

#include "yoke/parallel/common/owned_tensors.h"
#include "yoke/parallel/fit.h"
#include "yoke/parallel/placement/spare/spare.h"

namespace yoke::parallel {
namespace {

constexpr int kNoStage = -1;

class ComputingMaker : public Maker {
 public:
  ComputingMaker(Kit& kit, const MakeOptions& options, std::unique_ptr<comm::Communicator> computing)
      : kit_(kit), everyone_(*options.links.world), computing_(std::move(computing)), options_(options) {
    options_.spares = 0;
    options_.links.world = computing_.get();
    options_.links.workers = computing_->size();
    inner_ = place_model(kit, options_);
  }
  std::vector<optim::NamedTensor> parameters() override { return inner_->parameters(); }
  std::vector<StatePiece> optimizer_state() override { return inner_->optimizer_state(); }
  optim::LayerSums layer_sums() override { return inner_->layer_sums(); }
  std::unique_ptr<Strategy> strategy() override {
    return std::make_unique<BesideSpares>(inner_->strategy(), everyone_, kit_.device);
  }

 private:
  Kit& kit_;
  comm::Communicator& everyone_;
  std::unique_ptr<comm::Communicator> computing_;
  MakeOptions options_;
  std::shared_ptr<Maker> inner_;
};

class SpareMaker : public Maker {
 public:
  SpareMaker(Kit& kit, const MakeOptions& options)
      : device_(kit.device),
        everyone_(*options.links.world),
        replicas_(mesh_of(options, everyone_.size()).data) {
    if (options.links.job != nullptr) options.links.job->take_role("spare");
    std::vector<OwnedTensor> all;
    for (const auto& item : kit.model.module->named_parameters()) all.push_back({item.key(), item.value()});
    for (const auto& item : kit.model.module->named_buffers())
      all.push_back({item.key(), item.value(), /*is_parameter=*/false});
    release_others(all, kNoStage);
  }
  std::vector<optim::NamedTensor> parameters() override { return {}; }
  std::vector<StatePiece> optimizer_state() override { return {}; }
  std::unique_ptr<Strategy> strategy() override {
    return std::make_unique<Spare>(everyone_, replicas_, device_);
  }

 private:
  torch::Device device_;
  comm::Communicator& everyone_;
  int64_t replicas_;
};

}  // namespace

std::shared_ptr<Maker> place_beside_spares(Kit& kit, const MakeOptions& options) {
  comm::Communicator& everyone = *options.links.world;
  const bool spare = everyone.rank() >= everyone.size() - options.spares;
  std::unique_ptr<comm::Communicator> alike =
      everyone.split(spare ? 1 : 0, everyone.rank(), spare ? "spares" : "stages");
  if (spare) return std::make_shared<SpareMaker>(kit, options);
  return std::make_shared<ComputingMaker>(kit, options, std::move(alike));
}

}  // namespace yoke::parallel
