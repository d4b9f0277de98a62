#include "yoke/parallel/placement/stage/weight_versions.h"

#include <torch/utils.h>

#include "yoke/base/error.h"

namespace yoke::parallel {

WeightVersions::WeightVersions(std::vector<optim::NamedTensor> parameters, bool stash)
    : parameters_(std::move(parameters)), stash_(stash) {
  for (const auto& [name, parameter] : parameters_) {
    // A leaf of its own over the same memory, so that updates do not count as changes of what was saved.
    newest_.emplace_back(name, stash ? parameter.variable_data().requires_grad_() : parameter);
  }
}

WeightVersions::Tensors WeightVersions::memory_of_newest() const {
  Tensors memory;
  for (const auto& [name, tensor] : newest_) memory.push_back(tensor.variable_data());
  return memory;
}

void WeightVersions::use(int version) {
  if (!stash_ || version == in_use_) return;
  bool newest = version == newest_version_;
  auto found = kept_.find(version);
  YOKE_CHECK(newest || found != kept_.end(), "version {} of the weights is gone; the newest is {}", version,
             newest_version_);
  for (size_t i = 0; i < parameters_.size(); ++i)
    parameters_[i].second.set_data(newest ? newest_[i].second.variable_data() : found->second[i]);
  in_use_ = version;
}

WeightVersions::Tensors WeightVersions::take_gradients() {
  Tensors gradients;
  for (auto& [name, parameter] : parameters_) {
    gradients.push_back(parameter.grad());
    parameter.mutable_grad().reset();
  }
  return gradients;
}

void WeightVersions::begin_update(bool keep, Tensors gradients) {
  torch::NoGradGuard no_grad;
  for (size_t i = 0; i < newest_.size(); ++i) newest_[i].second.mutable_grad() = std::move(gradients[i]);
  bool released = std::exchange(newest_released_, false);
  if (!stash_ || !keep || released) return;
  Tensors old = memory_of_newest(), fresh;
  if (!spare_.empty()) {
    fresh = std::move(spare_.back());
    spare_.pop_back();
  }
  for (size_t i = 0; i < newest_.size(); ++i) {
    if (fresh.size() <= i) fresh.push_back(torch::empty_like(old[i]));
    fresh[i].copy_(old[i]);
    newest_[i].second.set_data(fresh[i]);
  }
  kept_[newest_version_] = std::move(old);
}

void WeightVersions::end_update() {
  if (!stash_) return;
  // The model's parameters lie in the newest memory only where that was updated in place.
  if (in_use_ == newest_version_ && kept_.count(newest_version_) == 0) in_use_ = newest_version_ + 1;
  ++newest_version_;
}

void WeightVersions::release(int version) {
  if (version == newest_version_) newest_released_ = true;
  auto found = kept_.find(version);
  if (found == kept_.end()) return;
  spare_.push_back(std::move(found->second));
  kept_.erase(found);
}

void WeightVersions::start_anew() {
  if (!stash_) return;
  use(newest_version_);
  kept_.clear();
  spare_.clear();
  newest_version_ = in_use_ = 0;
  newest_released_ = false;
}

}  // namespace yoke::parallel
