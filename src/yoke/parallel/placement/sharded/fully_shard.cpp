#include "yoke/parallel/placement/sharded/fully_shard.h"

#include <torch/utils.h>

#include <algorithm>
#include <map>

#include "yoke/base/error.h"
#include "yoke/comm/tensors/tensors.h"
#include "yoke/optim/clip.h"
#include "yoke/parallel/common/ddp/same_model.h"
#include "yoke/parallel/placement/sharded/interceptor.h"
#include "yoke/parallel/placement/sharded/sharded_units.h"

namespace yoke {
namespace {

using parallel::ShardedUnits;

void check_shardable(const parallel::NamedTensors& all, const FullyShardOptions& options) {
  if (all.empty()) throw ConfigError("fully_shard: the module has no parameters.");
  const std::string& offload = options.offload;
  if (offload != "none" && offload != "optimizer" && offload != "all")
    throw ConfigError("fully_shard: offload = {}: accepted are none, optimizer and all.", offload);
  if (offload != "none" && all[0].second.is_cpu())
    throw ConfigError(
        "fully_shard: offload = {}: the parameters are in host memory already. Use none, or move the module "
        "to a GPU first.",
        offload);
  if (options.prefetch < 0)
    throw ConfigError("fully_shard: prefetch = {}: accepted is 0 (none) and more.", options.prefetch);
  if (options.reduce_type && !c10::isFloatingType(*options.reduce_type))
    throw ConfigError("fully_shard: gradients cannot be reduced as {}. Use bfloat16 or float16.",
                      c10::toString(*options.reduce_type));
  if (options.gather_type && !c10::isFloatingType(*options.gather_type))
    throw ConfigError("fully_shard: parameters cannot be gathered as {}. Use bfloat16 or float16.",
                      c10::toString(*options.gather_type));
}

template <class... Plan>
std::unique_ptr<ShardedUnits> make_units(const parallel::ShardedPart& part, comm::Communicator& axis,
                                         const FullyShardOptions& options, const Plan&... plan) {
  check_shardable(part.parameters, options);
  return std::make_unique<ShardedUnits>(part, parallel::plan_units(plan..., options.gather_type), axis,
                                        options);
}

parallel::ShardedPart all_of(const torch::nn::Module& module) {
  return {parallel::distinct_parameters(module), parallel::distinct_buffers(module), {}};
}

}  // namespace

class FullyShard::Watch {
 public:
  explicit Watch(ShardedUnits& units)
      : interceptor_(keys_of(units), [&units](const std::vector<size_t>& used) { units.use(used); }) {}

 private:
  static std::vector<const c10::StorageImpl*> keys_of(const ShardedUnits& units) {
    std::vector<const c10::StorageImpl*> keys;
    for (const auto& unit : units.units()) keys.push_back(unit->key());
    return keys;
  }
  parallel::Interceptor interceptor_;
};

FullyShard::FullyShard(torch::nn::Module& module, comm::Communicator& axis, FullyShardOptions options)
    : parameters_(parallel::distinct_parameters(module)),
      units_(make_units(all_of(module), axis, options, module, options.units)),
      watch_(std::make_unique<Watch>(*units_)) {
  for (const auto& item : module.named_parameters()) by_name_.emplace(item.key(), item.value());
}

FullyShard::FullyShard(const models::Model& model, comm::Communicator& axis, FullyShardOptions options)
    : FullyShard(model, all_of(*model.module), axis, std::move(options)) {}

FullyShard::FullyShard(const models::Model& model, const parallel::ShardedPart& part,
                       comm::Communicator& axis, FullyShardOptions options)
    : parameters_(part.parameters),
      by_name_(parameters_.begin(), parameters_.end()),
      units_(make_units(part, axis, options, model, part)) {}

FullyShard::~FullyShard() = default;

std::unique_ptr<FullyShard> fully_shard(torch::nn::Module& module, comm::Communicator& axis,
                                        FullyShardOptions options) {
  return std::make_unique<FullyShard>(module, axis, std::move(options));
}

std::vector<torch::Tensor> FullyShard::parameters() const {
  std::vector<torch::Tensor> all;
  for (const auto& [name, tensor] : named_parameters()) all.push_back(tensor);
  return all;
}

const std::vector<optim::NamedTensor>& FullyShard::named_parameters() const {
  return units_->pieces().owned();
}

parallel::PieceSource FullyShard::pieces() const {
  parallel::OwnedPieces& own = units_->pieces();
  return {own.parameters(), own.pieces(), own.owned(), units_->comm()};
}

parallel::PieceSource FullyShard::frozen_pieces() const {
  const parallel::OwnedPieces::List& frozen = units_->pieces().frozen();
  return {frozen.parameters, frozen.pieces, frozen.owned, units_->comm()};
}

comm::Communicator& FullyShard::comm() const {
  return units_->comm();
}

double FullyShard::clip_grad_norm(double max_norm) {
  torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> own = parameters();
  torch::Tensor square = optim::clip_grad_norm(own, 0).to(torch::kFloat64).square().reshape({1});
  square = square.to(parameters_[0].second.device());
  comm::all_reduce(comm(), square, ReduceOp::kSum, "norm of the gradients");
  torch::Tensor norm = square[0].sqrt();
  if (max_norm > 0) optim::scale_gradients(own, (max_norm / (norm + 1e-6)).clamp_max(1.0));
  return norm.item<double>();
}

models::Model FullyShard::wrap(const models::Model& model) {
  models::Model wrapped = model;
  for (models::Block& block : wrapped.blocks) {
    ShardedUnits::Units used = units_->units_of(block.modules);
    if (used.empty()) continue;
    block.forward = [units = units_.get(), used, inner = block.forward](const models::Tensors& inputs) {
      units->use(used);
      models::Tensors outputs = inner(inputs);
      // Backward comes to the block through its outputs.
      for (const torch::Tensor& output : outputs)
        if (output.defined() && output.grad_fn())
          output.register_hook([units, used](const torch::Tensor&) { units->use_in_backward(used); });
      return outputs;
    };
  }
  return wrapped;
}

parallel::NamedTensors FullyShard::full_parameters() {
  std::map<const void*, torch::Tensor> whole;
  for (const auto& unit : units_->units()) {
    std::vector<torch::Tensor> full = unit->full();
    for (size_t i = 0; i < full.size(); ++i)
      whole[unit->parameters()[i].second.unsafeGetTensorImpl()] = full[i];
  }
  parallel::NamedTensors all;
  for (const auto& [name, parameter] : parameters_)
    all.emplace_back(name, whole.at(parameter.unsafeGetTensorImpl()));
  return all;
}

std::vector<torch::Tensor> FullyShard::full_gradients() {
  torch::NoGradGuard no_grad;
  std::map<const void*, torch::Tensor> whole;
  for (size_t u = 0; u < units_->units().size(); ++u) {
    const torch::Tensor& part = units_->pieces().gradient(u);
    if (!part.defined()) continue;
    const auto& unit = units_->units()[u];
    std::vector<torch::Tensor> full = unit->assemble(part);
    for (size_t i = 0; i < full.size(); ++i)
      whole[unit->parameters()[i].second.unsafeGetTensorImpl()] = full[i];
  }
  std::vector<torch::Tensor> all;
  if (comm().rank() != 0 || whole.empty()) return all;
  for (const auto& [name, parameter] : units_->pieces().parameters())
    all.push_back(whole[parameter.unsafeGetTensorImpl()]);
  return all;
}

FullyShard::Hold::Hold(FullyShard& fully) : fully_(fully) {
  fully.units_->hold();
}
FullyShard::Hold::~Hold() {
  fully_.units_->let_go();
}

void FullyShard::load(const parallel::NamedTensors& whole) {
  torch::NoGradGuard no_grad;
  std::map<std::string, torch::Tensor> given(whole.begin(), whole.end());
  for (const auto& [name, tensor] : given) {
    auto found = by_name_.find(name);
    if (found == by_name_.end()) throw CheckpointError("'{}' is no parameter of this module.", name);
    if (found->second.numel() != tensor.numel())
      throw CheckpointError("'{}' has {} elements, the module's {}.", name, tensor.numel(),
                            found->second.numel());
  }
  for (const auto& unit : units_->units()) unit->load(given);
  units_->moved();
}

void FullyShard::release() {
  units_->release_all();
}

ShardedMemory FullyShard::memory() const {
  ShardedMemory memory;
  for (const auto& unit : units_->units()) {
    memory.shards += unit->shard_bytes();
    memory.largest_unit = std::max(memory.largest_unit, unit->gathered_bytes());
  }
  memory.gradients = units_->pieces().gradient_bytes();
  memory.in_flight = units_->pool().peak_bytes();
  return memory;
}

}  // namespace yoke
