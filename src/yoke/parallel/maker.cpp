#include "yoke/parallel/maker.h"

#include <torch/cuda.h>

#include <map>
#include <unordered_set>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/log.h"
#include "yoke/comm/connect_first.h"
#include "yoke/optim/settings.h"
#include "yoke/parallel/can_record.h"
#include "yoke/parallel/common/ddp/ddp_strategy.h"
#include "yoke/parallel/common/ddp/sync_batchnorm.h"
#include "yoke/parallel/common/slow_motion.h"
#include "yoke/parallel/held_part.h"
#include "yoke/parallel/layer_sums.h"
#include "yoke/parallel/placement/slice/sliced_strategy.h"
#include "yoke/parallel/recipe_checks.h"
#include "yoke/parallel/registry.h"
#include "yoke/parallel/schedule/graphed/graphed_device.h"
#include "yoke/parallel/schedule/graphed/graphed_replicas.h"
#include "yoke/parallel/schedule/threads/threads_strategy.h"
#include "yoke/parallel/spares.h"
#include "yoke/parallel/sync/average/average_strategy.h"
#include "yoke/parallel/sync/servers/ps_strategy.h"
#include "yoke/parallel/sync/servers/sandblaster_strategy.h"
#include "yoke/parallel/sync/servers/served_maker.h"
#include "yoke/parallel/sync/servers/server_ranks.h"
#include "yoke/parallel/sync/sharded/check_sharded.h"
#include "yoke/parallel/sync/sharded/fully_sharded_strategy.h"
#include "yoke/parallel/sync/sharded/sharded_state.h"
#include "yoke/parallel/sync/sharded/zero_strategy.h"

namespace yoke::parallel {
namespace {

std::map<std::string, MakeReplica>& own_rules() {
  static std::map<std::string, MakeReplica> rules;
  return rules;
}

OneDeviceOptions device_options(const Kit& kit, const MakeOptions& options) {
  OneDeviceOptions device;
  device.device = kit.device;
  device.precision = kit.autocast;
  device.clip_norm = options.optimizer.clip_norm;
  device.keep_batches = options.optimizer.optimizer == "lbfgs";
  device.place = kit.place;
  device.segments = kit.segments;
  device.slices = options.slices;
  return device;
}

std::vector<optim::NamedTensor> trained_parameters(const Kit& kit) {
  std::vector<optim::NamedTensor> parameters;
  for (const auto& item : kit.model.module->named_parameters())
    if (item.value().requires_grad()) parameters.emplace_back(item.key(), item.value());
  return parameters;
}

// [slowdown] for replicas that average gradients, or one device alone.
void slow_down(Kit& kit, const MakeOptions& options) {
  const plan::DelayLaw law = plan::parse_delay_law(options.slowdown.law);
  if (law.kind == plan::DelayLaw::Kind::kNone) return;
  if (kit.device.is_cuda())
    throw ConfigError("slowdown.law = \"{}\" is for CPUs: a GPU does not wait when its host does.",
                      options.slowdown.law);
  const int rank = options.links.rank;
  auto slow = plan::parse_slow_workers("slowdown.workers", options.slowdown.workers, options.links.workers);
  if (slow[static_cast<size_t>(rank)])
    kit.model = in_slow_motion(kit.model, law, static_cast<uint64_t>(options.slowdown.seed), rank);
}

// A rank with the whole model.
class WholeMaker : public Maker {
 public:
  WholeMaker(Kit& kit, const MakeOptions& options)
      : kit_(kit),
        options_(options),
        replicas_(options.links.world != nullptr && options.links.world->size() > 1 ? options.links.world
                                                                                    : nullptr) {}

  std::vector<optim::NamedTensor> parameters() override { return trained_parameters(kit_); }
  std::vector<StatePiece> optimizer_state() override { return whole_state({}, {}, kit_.optimizer->state()); }

  std::unique_ptr<Strategy> strategy() override {
    if (options_.links.messenger == nullptr) slow_down(kit_, options_);
    OneDeviceOptions device = device_options(kit_, options_);
    if (options_.links.messenger != nullptr && options_.sync_batchnorm) connect_workers();
    if (replicas_ != nullptr && options_.sync_batchnorm) {
      // On a communicator of their own, so that small messages do not wait behind buckets of gradients.
      norms_ = replicas_->split(0, replicas_->rank(), "norms");
      convert_sync_batchnorm(*kit_.model.module, *norms_);
    }
    if (options_.links.messenger != nullptr && options_.optimizer.optimizer == "lbfgs")
      return std::make_unique<SandblasterStrategy>(kit_.model, *kit_.optimizer, kit_.scaler,
                                                   std::move(device), served_setup(options_));
    if (options_.links.messenger != nullptr) {
      PsSetup setup = served_setup(options_);
      if (options_.sync_batchnorm) setup.team = replicas_;
      return std::make_unique<PsStrategy>(kit_.model, *kit_.optimizer, kit_.scaler, std::move(device),
                                          std::move(setup));
    }
    if (replicas_ != nullptr) return among_replicas(std::move(device));
    if (options_.replicas_in_process() > 1)
      return std::make_unique<ThreadsStrategy>(kit_.model, followers(), *kit_.optimizer, kit_.scaler,
                                               std::move(device));
    if (can_record(kit_, options_))
      return std::make_unique<GraphedDevice>(kit_.model, *kit_.optimizer, kit_.scaler, std::move(device),
                                             /*scales=*/kit_.precision == Precision::kFp16);
    return std::make_unique<OneDevice>(kit_.model, *kit_.optimizer, kit_.scaler, std::move(device));
  }

 protected:
  virtual std::unique_ptr<Strategy> among_replicas(OneDeviceOptions device) {
    auto own = own_rules().find(options_.parallel.sync);
    if (own != own_rules().end()) return own->second(kit_, device, *replicas_);
    if (options_.parallel.sync == "average")
      return std::make_unique<AverageStrategy>(kit_.model, *kit_.optimizer, kit_.scaler, std::move(device),
                                               *replicas_, options_.average, options_.ddp);
    if (records())
      return std::make_unique<GraphedReplicas>(kit_.model, *kit_.optimizer, kit_.scaler, device, *replicas_,
                                               options_.ddp);
    return std::make_unique<DdpStrategy>(kit_.model, *kit_.optimizer, kit_.scaler, std::move(device),
                                         *replicas_, options_.ddp);
  }

  bool records() const {
    if (!kit_.device.is_cuda()) return false;
    const std::string why = why_not_recorded(kit_, options_);
    if (!why.empty() && options_.cuda_graph && options_.links.rank == 0)
      log::info("steps are not recorded as CUDA graphs: {}", why);
    return why.empty();
  }

  Kit& kit_;
  const MakeOptions& options_;
  comm::Communicator* replicas_;  // null: one

 private:
  // Workers of servers, which have no links to each other yet. Collective over them.
  void connect_workers() {
    if (replicas_ != nullptr || options_.links.job == nullptr || options_.links.workers == 1) return;
    comm::ConnectOptions connect;
    connect.backend = options_.parallel.backend;
    connect.name = "workers";
    if (kit_.device.is_cuda() && connect.backend == "auto") connect.backend = "nccl";
    workers_ = comm::connect_first(*options_.links.job, options_.links.workers, connect);
    replicas_ = workers_.get();
  }

  // The other replicas of this process. They get their values from the first.
  std::vector<models::Model> followers() const {
    if (kit_.model.sample.kind == SampleKind::kSparse)
      throw ConfigError("parallel.sync = threads cannot be combined with sparse samples. Take --nproc 1.");
    std::vector<models::Model> others;
    for (int64_t i = 1; i < options_.replicas_in_process(); ++i) {
      others.push_back(options_.another_model());
      torch::Device device = kit_.device;
      const auto devices = std::max<int64_t>(1, static_cast<int64_t>(torch::cuda::device_count()));
      if (device.is_cuda()) device = torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(i % devices));
      others.back().module->to(device);
      const std::vector<torch::Tensor> first = kit_.model.module->parameters();
      std::vector<torch::Tensor> own = others.back().module->parameters();
      for (size_t p = 0; p < own.size(); ++p) own[p].requires_grad_(first[p].requires_grad());
    }
    return others;
  }

  std::unique_ptr<comm::Communicator> workers_;
  std::unique_ptr<comm::Communicator> norms_;  // of BatchNorm layers that share their statistics
};

// Replicas that shard the optimizer's state.
class ShardedMaker : public WholeMaker {
 public:
  ShardedMaker(Kit& kit, const MakeOptions& options) : WholeMaker(kit, options) {
    check_sharded(kit, options);
    shards_ = std::make_unique<Shards>(*kit.model.module, *replicas_, options.ddp);
  }
  std::vector<optim::NamedTensor> parameters() override { return shards_->owned(); }
  std::vector<StatePiece> optimizer_state() override {
    return sharded_state(shards_->source(), kit_.optimizer->state());
  }
  optim::LayerSums layer_sums() override { return sums_over_pieces(shards_->source(), kit_.device); }

 protected:
  std::unique_ptr<Strategy> among_replicas(OneDeviceOptions device) override {
    return std::make_unique<ZeroStrategy>(kit_.model, *kit_.optimizer, kit_.scaler, std::move(device),
                                          *replicas_, options_.ddp, *shards_, options_.parallel.zero);
  }

 private:
  std::unique_ptr<Shards> shards_;
};

// Replicas that hold shards of the parameters and gather blocks when they are used.
class GatheringMaker : public WholeMaker {
 public:
  GatheringMaker(Kit& kit, const MakeOptions& options) : WholeMaker(kit, options) {
    check_sharded(kit, options);
    fully_ = std::make_unique<FullyShard>(kit.model, *replicas_, how_to_gather(kit, options));
  }
  std::vector<optim::NamedTensor> parameters() override { return fully_->named_parameters(); }
  std::vector<StatePiece> optimizer_state() override {
    return sharded_state(fully_->pieces(), kit_.optimizer->state());
  }
  optim::LayerSums layer_sums() override { return sums_over_pieces(fully_->pieces(), kit_.device); }

 protected:
  std::unique_ptr<Strategy> among_replicas(OneDeviceOptions device) override {
    return std::make_unique<FullyShardedStrategy>(kit_.model, *kit_.optimizer, kit_.scaler, std::move(device),
                                                  *fully_);
  }

 private:
  std::unique_ptr<FullyShard> fully_;
};

// Ranks that hold slices of the layers of one model: another strategy on those that hold the same slices.
class SliceMaker : public Maker {
 public:
  SliceMaker(Kit& kit, const MakeOptions& options)
      : world_(*options.links.world),
        axis_(
            world_.split(world_.rank() / static_cast<int>(options.parallel.tensor), world_.rank(), "tensor")),
        peers_(world_.split(axis_->rank(), world_.rank(), "data")),
        inner_options_(options),
        cut_(parallelize(*kit.model.module, *axis_, plan_for(kit, options), {options.parallel.sequence})) {
    inner_options_.parallel.tensor = 1;
    inner_options_.links.world = peers_.get();
    inner_options_.links.workers = peers_->size();
    inner_options_.links.rank = peers_->rank();
    inner_options_.slices = {axis_.get(), [replicated = replicated_parameters(kit),
                                           first = axis_->rank() == 0](const torch::Tensor& one) {
                               return first || !replicated.contains(one.unsafeGetTensorImpl());
                             }};
    inner_ = place_model(kit, inner_options_);
  }
  std::vector<optim::NamedTensor> parameters() override { return inner_->parameters(); }
  std::vector<StatePiece> optimizer_state() override {
    std::vector<StatePiece> all;
    for (StatePiece& piece : inner_->optimizer_state()) {
      const size_t slash = piece.name.find('/');
      if (piece.kind != StatePiece::Kind::kOptimizer || slash == std::string::npos) continue;
      const TensorSlice& slice = cut_.slice(piece.name.substr(slash + 1));
      if (slice.replicated())
        all.push_back(std::move(piece));
      else if (auto part = piece_of_slice(std::move(piece), slice))
        all.push_back(std::move(*part));
    }
    return all;
  }
  optim::LayerSums layer_sums() override {
    return sums_over_slices(inner_->layer_sums(), inner_->parameters(), cut_, *axis_);
  }
  std::unique_ptr<Strategy> strategy() override {
    return std::make_unique<SlicedStrategy>(inner_->strategy(), cut_, *axis_, world_);
  }

 private:
  static plan::TensorPlan plan_for(const Kit& kit, const MakeOptions& options) {
    if (!options.parallel.tensor_plan.empty())
      return plan::parse_tensor_plan(read_file(options.parallel.tensor_plan), options.parallel.tensor_plan);
    if (!kit.model.tensor_plan.empty())
      return plan::parse_tensor_plan(kit.model.tensor_plan, "tensor plan of " + kit.model.name);
    return plan::tensor_preset(kit.model.name, tensor_layers(*kit.model.module), kit.model.heads);
  }
  std::unordered_set<const void*> replicated_parameters(const Kit& kit) const {
    std::unordered_set<const void*> all;
    for (const auto& item : kit.model.module->named_parameters())
      if (cut_.slice(item.key()).replicated()) all.insert(item.value().unsafeGetTensorImpl());
    return all;
  }

  comm::Communicator& world_;
  std::unique_ptr<comm::Communicator> axis_, peers_;
  MakeOptions inner_options_;
  TensorParallel cut_;
  std::shared_ptr<Maker> inner_;
};

}  // namespace

Links links_of(Membership& member) {
  return {member.world(),  member.messenger(), &member.job(),
          member.server(), member.workers(),   member.worker()};
}

int64_t MakeOptions::replicas_in_process() const {
  return parallel.sync == "threads" ? std::max<int64_t>(1, parallel.data) : 1;
}

bool MakeOptions::has_peers() const {
  return links.messenger != nullptr || (links.world != nullptr && links.world->size() > 1);
}

bool MakeOptions::holds_part() const {
  return (parallel.pipeline > 1 || parallel.tensor > 1) && links.world != nullptr;
}

std::shared_ptr<Maker> place_model(Kit& kit, const MakeOptions& options) {
  Chosen chosen = choose(options);
  check_optimizer(options, options.optimizer.optimizer);
  check_recipe(options, options.optimizer);
  if (options.spares > 0 && options.has_peers()) return place_beside_spares(kit, options);
  if (chosen.has("servers") && options.holds_part())
    return make_served_parts(kit, options, device_options(kit, options));
  if (chosen.has("slice") && options.has_peers()) return std::make_shared<SliceMaker>(kit, options);
  if (chosen.has("part") && options.parallel.pipeline > 1 && options.links.world != nullptr)
    return place_graph_part(kit, options);
  if (chosen.has("stage") && options.parallel.pipeline > 1 && options.links.world != nullptr)
    return place_stage(kit, options);
  if (chosen.has("gathered") && options.has_peers()) return std::make_shared<GatheringMaker>(kit, options);
  if (chosen.has("sharded") && options.has_peers()) return std::make_shared<ShardedMaker>(kit, options);
  return std::make_shared<WholeMaker>(kit, options);
}

optim::OptimizerOptions settle_groups(Kit& kit, const optim::OptimizerOptions& options) {
  std::vector<optim::NamedTensor> parameters;
  for (const auto& item : kit.model.module->named_parameters())
    parameters.emplace_back(item.key(), item.value());
  optim::OptimizerOptions settled = optim::with_settings(options, parameters);
  for (auto& [name, parameter] : parameters)
    if (settled.settings.at(name).freeze) parameter.requires_grad_(false);
  return settled;
}

std::unique_ptr<optim::Optimizer> make_optimizer(Kit& kit, const optim::OptimizerOptions& options) {
  auto optimizer = optim::make(options, kit.maker->parameters());
  if (optim::LayerSums sums = kit.maker->layer_sums(); sums.complete)
    optim::complete_layer_sums(*optimizer, std::move(sums));
  return optimizer;
}

void register_sync(const std::string& name, const std::string& sentence, MakeReplica make) {
  add_sync(name, sentence);
  own_rules()[name] = std::move(make);
}

}  // namespace yoke::parallel
