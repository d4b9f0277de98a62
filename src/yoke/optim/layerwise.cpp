#include "yoke/optim/layerwise.h"

#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/utils.h>

#include <utility>

#include "yoke/base/error.h"
#include "yoke/optim/optimizers.h"

namespace yoke::optim {
namespace {

using torch::Tensor;

Tensor squares(const std::vector<Tensor>& tensors) {
  return at::stack(at::_foreach_norm(tensors, 2)).to(torch::kDouble).square();
}

}  // namespace

LayerwiseOptimizer::LayerwiseOptimizer(const OptimizerOptions& options, std::vector<NamedTensor> parameters)
    : FirstOrderOptimizer(options, std::move(parameters)), options_(options) {
  options_.eps = effective_eps(options);
  for (size_t i = 0; i < list().size(); ++i) {
    sums_.layers.push_back(list().name(i));
    sums_.layer_of.push_back(static_cast<int64_t>(i));
  }
}

void LayerwiseOptimizer::complete(LayerSums sums) {
  sums_ = std::move(sums);
  sums_.layer_of.resize(list().size(), -1);
  places_.clear();
}

// Padding counts in a place behind the layers.
const LayerwiseOptimizer::Places& LayerwiseOptimizer::places_of(const std::vector<size_t>& indices) {
  auto [found, is_new] = places_.try_emplace(indices);
  if (!is_new) return found->second;
  std::vector<int64_t> layers, scaled;
  for (size_t i : indices) {
    const int64_t layer = sums_.layer_of[i];
    layers.push_back(layer < 0 ? static_cast<int64_t>(sums_.layers.size()) : layer);
    scaled.push_back(list().settings(i).matrix ? 1 : 0);
  }
  auto here = [&](const std::vector<int64_t>& values) {
    return torch::tensor(values, torch::kLong).to(list().device());
  };
  found->second = {here(layers), here(scaled).to(torch::kBool)};
  return found->second;
}

// [2, layers + 1]: of the weights and of the directions. Collective where sums are completed, also for a
// rank that has nothing to add.
Tensor LayerwiseOptimizer::norms_over_layers(const std::vector<UpdateGroup>& groups,
                                             const std::vector<Tensors>& directions) {
  const auto layers = static_cast<int64_t>(sums_.layers.size());
  Tensor sums = at::zeros({2, layers + 1}, at::TensorOptions().dtype(torch::kDouble).device(list().device()));
  for (size_t i = 0; i < groups.size(); ++i) {
    const Tensor& of = places_of(groups[i].indices).layers;
    sums[0].index_add_(0, of, squares(groups[i].targets));
    sums[1].index_add_(0, of, squares(directions[i]));
  }
  if (sums_.complete) {
    Tensor whole = sums.narrow(1, 0, layers).contiguous();
    sums_.complete(whole);
    sums.narrow(1, 0, layers).copy_(whole);
  }
  return sums.sqrt_();
}

// 1 where a norm is 0, and for what is not scaled.
LayerwiseOptimizer::Tensors LayerwiseOptimizer::ratios_of(const UpdateGroup& group, const Tensor& norms) {
  const Places& places = places_of(group.indices);
  const Tensor own = norms.index_select(1, places.layers);
  const Tensor ratios = ratio(own[0], own[1], group.settings);
  const Tensor scaled = places.scaled.logical_and(own[0] > 0).logical_and(own[1] > 0);
  return at::where(scaled, ratios, at::ones_like(ratios)).to(group.targets[0].scalar_type()).unbind(0);
}

void LayerwiseOptimizer::update(const LossFunction&) {
  torch::NoGradGuard no_grad;
  for (const SparseUpdate& sparse : list().sparse_updates()) update_sparse(sparse);
  const std::vector<UpdateGroup> groups = list().dense_updates();
  std::vector<Tensors> all;
  for (const UpdateGroup& group : groups) all.push_back(directions(group));
  const Tensor norms = norms_over_layers(groups, all);
  for (size_t i = 0; i < groups.size(); ++i) move(groups[i], std::move(all[i]), ratios_of(groups[i], norms));
  list().write_back();
}

void LayerwiseOptimizer::update_sparse(const SparseUpdate& update) {
  throw ConfigError(
      "train.optimizer = {}: parameter '{}' has sparse gradients, and the norm of a layer needs all of it. "
      "Hint: adagrad or sgd",
      options_.optimizer, list().name(update.index));
}

bool complete_layer_sums(Optimizer& optimizer, LayerSums sums) {
  auto* layerwise = dynamic_cast<LayerwiseOptimizer*>(&without_average(optimizer));
  if (layerwise == nullptr) return false;
  layerwise->complete(std::move(sums));
  return true;
}

bool needs_layer_sums(const std::string& optimizer) {
  return optimizer == "lars" || optimizer == "lamb";
}

}  // namespace yoke::optim
