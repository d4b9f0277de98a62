#include "yoke/parallel/placement/slice/parallelize.h"

#include <torch/utils.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/comm/tensors/tensors.h"
#include "yoke/parallel/placement/slice/module_layers.h"
#include "yoke/parallel/placement/slice/operators.h"
#include "yoke/parallel/placement/slice/region.h"
#include "yoke/parallel/placement/slice/sliced_weights.h"

namespace yoke {
namespace {

using parallel::LayerTensors;
using parallel::SlicedWeight;
using parallel::SlicedWeights;
using parallel::TensorAxis;
using plan::CutRange;
using plan::LayerCut;
using plan::TensorCut;
using torch::Tensor;

Tensor part_of_whole(const TensorSlice& slice, const Tensor& whole) {
  if (slice.replicated()) return whole;
  std::vector<Tensor> parts;
  for (const CutRange& range : slice.ranges)
    parts.push_back(whole.narrow(slice.dim, range.begin, range.size()));
  return at::cat(parts, slice.dim).contiguous();
}

bool takes_slices(TensorCut cut) {
  return cut == TensorCut::kRows || cut == TensorCut::kChannelsIn;
}

// The dim of the weight that is cut.
int64_t weight_dim(const LayerTensors& tensors, TensorCut cut) {
  if (cut == TensorCut::kVocabulary && tensors.layer.kind == plan::TensorLayer::Kind::kEmbedding) return 0;
  return takes_slices(cut) == tensors.input_first ? 0 : 1;
}

// Every parameter and buffer under all of its names.
std::map<std::string, Tensor> tensors_of(const torch::nn::Module& module) {
  std::map<std::string, Tensor> tensors;
  for (const auto& named : module.named_parameters()) tensors[named.key()] = named.value();
  for (const auto& named : module.named_buffers()) tensors[named.key()] = named.value();
  return tensors;
}

}  // namespace

struct TensorParallel::Impl {
  struct CutTensor {
    LayerCut cut;
    int64_t dim = -1;
  };

  std::shared_ptr<TensorAxis> axis;
  std::vector<TensorSlice> slices;
  std::map<std::string, CutTensor> cuts;
  std::vector<std::shared_ptr<SlicedWeight>> weights;
  std::vector<std::pair<Tensor, unsigned>> hooks;
  std::shared_ptr<void> here;

  ~Impl() {
    for (const auto& weight : weights) SlicedWeights::remove(weight);
    for (auto& [parameter, hook] : hooks) parameter.remove_hook(hook);
    if (parallel::sequence_axis() == axis) parallel::set_sequence_axis(nullptr);
  }

  TensorSlice slice_for(const std::string& name, const std::vector<int64_t>& shape, int rank) const {
    TensorSlice slice{.name = name, .global_shape = shape};
    auto cut = cuts.find(name);
    if (cut == cuts.end()) return slice;
    slice.dim = cut->second.dim;
    slice.ranges = ranges_of(cut->second.cut, shape[static_cast<size_t>(slice.dim)], axis->size(), rank);
    return slice;
  }

  void plan_cuts(const std::vector<LayerTensors>& layers, const std::vector<LayerCut>& layer_cuts) {
    for (const LayerCut& cut : layer_cuts) {
      auto layer = std::find_if(layers.begin(), layers.end(),
                                [&](const LayerTensors& l) { return l.layer.name == cut.layer; });
      cuts[layer->weight] = {
          cut, layer->layer.kind == plan::TensorLayer::Kind::kBatchNorm ? 0 : weight_dim(*layer, cut.cut)};
      if (!layer->bias.empty() && !takes_slices(cut.cut)) cuts[layer->bias] = {cut, 0};
      for (const std::string& name : layer->rest) cuts[name] = {cut, 0};
    }
  }

  void shrink(const std::map<std::string, Tensor>& tensors, const torch::nn::Module& module) {
    torch::NoGradGuard no_grad;
    std::set<const void*> done;
    auto take_in = [&](const std::string& name) {
      Tensor tensor = tensors.at(name);
      slices.push_back(slice_for(name, tensor.sizes().vec(), axis->rank()));
    };
    for (const auto& named : module.named_parameters()) take_in(named.key());
    for (const auto& named : module.named_buffers()) take_in(named.key());
    for (const TensorSlice& slice : slices) {
      Tensor tensor = tensors.at(slice.name);
      if (slice.replicated() || !done.insert(tensor.unsafeGetTensorImpl()).second) continue;
      tensor.set_data(part_of_whole(slice, tensor.detach()).clone());
      if (tensor.requires_grad()) tensor.mutable_grad() = Tensor();
    }
  }

  void register_weights(const std::vector<LayerTensors>& layers,
                        const std::map<std::string, Tensor>& tensors) {
    for (const LayerTensors& layer : layers) {
      auto found = cuts.find(layer.weight);
      if (found == cuts.end() || layer.layer.kind == plan::TensorLayer::Kind::kBatchNorm) continue;
      auto weight = std::make_shared<SlicedWeight>();
      weight->axis = axis;
      weight->cut = found->second.cut;
      weight->weight = tensors.at(layer.weight);
      if (weight->cut.cut == TensorCut::kVocabulary) {
        weight->total = weight->cut.units;
        weight->part = plan::cut_part(weight->total, axis->size(), axis->rank());
      }
      for (int rank = 0; weight->cut.gathered && rank < axis->size(); ++rank)
        weight->input_sizes.push_back(plan::cut_part(weight->cut.input_units, axis->size(), rank).size());
      SlicedWeights::add(weight);
      weights.push_back(weight);
      check_interception(weight);
    }
  }

  // A forward pass on another thread would compute with slices as if they were all.
  void check_interception(const std::shared_ptr<SlicedWeight>& weight) {
    if (!weight->weight.requires_grad()) return;
    std::weak_ptr<SlicedWeight> watched = weight;
    unsigned hook = weight->weight.register_hook([watched](Tensor gradient) {
      auto slice = watched.lock();
      if (slice != nullptr && !slice->used)
        throw ConfigError(
            "layer '{}' is cut over ranks, and its forward pass ran where nothing is exchanged: on a thread "
            "other than "
            "the one that called parallelize(), or by an operator it does not know. Hint: "
            "use_on_this_thread().",
            slice->layer());
      return gradient;
    });
    hooks.emplace_back(weight->weight, hook);
  }

  // Each rank has seen its part of the sequence only.
  void sum_replicated(const std::map<std::string, Tensor>& tensors, const std::set<std::string>& outside) {
    for (const TensorSlice& slice : slices) {
      Tensor parameter = tensors.at(slice.name);
      if (!slice.replicated() || !parameter.requires_grad() || outside.contains(slice.name)) continue;
      std::string name = "grad of " + slice.name;
      unsigned hook = parameter.register_hook([axis = axis, name](const Tensor& gradient) {
        Tensor sum = gradient.clone(at::MemoryFormat::Contiguous);
        comm::all_reduce(axis->comm(), sum, ReduceOp::kSum, name);
        return sum;
      });
      hooks.emplace_back(parameter, hook);
    }
  }
};

TensorParallel::TensorParallel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TensorParallel::TensorParallel(TensorParallel&&) noexcept = default;
TensorParallel::~TensorParallel() = default;

const std::vector<TensorSlice>& TensorParallel::slices() const {
  return impl_->slices;
}

const TensorSlice& TensorParallel::slice(const std::string& name) const {
  for (const TensorSlice& slice : impl_->slices) {
    if (slice.name == name) return slice;
  }
  std::vector<std::string> names;
  for (const TensorSlice& slice : impl_->slices) names.push_back(slice.name);
  throw ConfigError("there is no parameter '{}'. Hint: the nearest is '{}'.", name,
                    nearest_name(name, names));
}

TensorSlice TensorParallel::slice(const std::string& name, int rank) const {
  const TensorSlice& own = slice(name);
  return impl_->slice_for(name, own.global_shape, rank);
}

Tensor TensorParallel::take(const std::string& name, const Tensor& whole) const {
  const TensorSlice& own = slice(name);
  if (whole.sizes() != own.global_shape)
    throw ConfigError("'{}' is {}, and a tensor of {} was given", name, c10::str(own.global_shape),
                      c10::str(whole.sizes()));
  return part_of_whole(own, whole.detach()).clone();
}

Tensor TensorParallel::gather(const std::string& name, const Tensor& part) const {
  const TensorSlice& own = slice(name);
  if (own.replicated()) return part;
  torch::NoGradGuard no_grad;
  int ranks = impl_->axis->size();
  std::vector<TensorSlice> of_rank;
  std::vector<int64_t> widths, shape = own.global_shape;
  int64_t rest = 1;
  for (size_t d = 0; d < shape.size(); ++d) rest *= static_cast<int64_t>(d) == own.dim ? 1 : shape[d];
  for (int rank = 0; rank < ranks; ++rank) {
    of_rank.push_back(slice(name, rank));
    int64_t width = 0;
    for (const CutRange& range : of_rank.back().ranges) width += range.size();
    widths.push_back(width * rest);
  }
  Tensor flat = comm::all_gather(impl_->axis->comm(), part.contiguous().view({-1}), "gather " + name, widths);
  Tensor whole = at::empty(shape, part.options());
  int64_t at = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    int64_t width = widths[static_cast<size_t>(rank)];
    shape[static_cast<size_t>(own.dim)] = width / rest;
    Tensor theirs = flat.narrow(0, at, width).view(shape);
    at += width;
    int64_t offset = 0;
    for (const CutRange& range : of_rank[static_cast<size_t>(rank)].ranges) {
      whole.narrow(own.dim, range.begin, range.size()).copy_(theirs.narrow(own.dim, offset, range.size()));
      offset += range.size();
    }
  }
  return whole;
}

std::shared_ptr<void> TensorParallel::use_on_this_thread() const {
  if (impl_->axis->sequence()) parallel::set_sequence_axis(impl_->axis);
  return std::make_shared<parallel::OperatorInterception>();
}

TensorParallel parallelize(torch::nn::Module& module, comm::Communicator& axis, const TensorPlan& plan,
                           const TensorParallelOptions& options) {
  std::vector<LayerTensors> layers = parallel::layers_of(module);
  std::vector<plan::TensorLayer> names = tensor_layers(module);
  std::vector<LayerCut> cuts = plan::cut_layers(plan, names, axis.size());
  auto impl = std::make_unique<TensorParallel::Impl>();
  impl->axis = std::make_shared<TensorAxis>(axis, options.sequence);
  std::map<std::string, Tensor> tensors = tensors_of(module);
  impl->plan_cuts(layers, cuts);
  impl->shrink(tensors, module);
  impl->register_weights(layers, tensors);
  if (options.sequence) {
    std::set<std::string> outside;
    for (const plan::TensorRule& rule : plan.rules) {
      if (rule.how.cut != TensorCut::kReplicated) continue;
      for (const LayerTensors& layer : layers) {
        if (plan::matches(rule.pattern, layer.layer.name)) outside.insert({layer.weight, layer.bias});
      }
    }
    impl->sum_replicated(tensors, outside);
  }
  TensorParallel result(std::move(impl));
  result.impl_->here = result.use_on_this_thread();
  return result;
}

std::vector<plan::TensorLayer> tensor_layers(const torch::nn::Module& module) {
  std::vector<plan::TensorLayer> layers;
  for (const LayerTensors& layer : parallel::layers_of(module)) layers.push_back(layer.layer);
  return layers;
}

}  // namespace yoke
