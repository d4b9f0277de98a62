// The weights of a stage, in as many versions as micro-batches under way need.
//
// Where an update would change weights that somebody still needs, it goes to memory of its own and the old
// ones stay where they are: what autograd has saved of them stays right. The optimizer moves the newest.
#pragma once

#include <map>
#include <vector>

#include "yoke/optim/optimizer.h"

namespace yoke::parallel {

class WeightVersions {
 public:
  // `parameters` are the model's. Without `stash` there is one version, updated in place.
  WeightVersions(std::vector<optim::NamedTensor> parameters, bool stash);

  // What the optimizer shall move.
  const std::vector<optim::NamedTensor>& newest() const { return newest_; }

  // The model computes with this version from here on. Requires: it is alive.
  void use(int version);
  // The gradients that the model's parameters have collected, which then have none.
  std::vector<torch::Tensor> take_gradients();
  // The newest is about to be updated with these gradients. `keep`: somebody needs it as it is, unless it was
  // released since.
  void begin_update(bool keep, std::vector<torch::Tensor> gradients);
  void end_update();
  // Nobody needs this version again, but for an update that makes the next one of it.
  void release(int version);
  // All others are given up; the newest becomes version 0.
  void start_anew();

  int newest_version() const { return newest_version_; }
  // Copies of the weights that there are now.
  int alive() const { return static_cast<int>(kept_.size()) + 1; }

 private:
  using Tensors = std::vector<torch::Tensor>;
  Tensors memory_of_newest() const;

  std::vector<optim::NamedTensor> parameters_;
  std::vector<optim::NamedTensor> newest_;
  bool stash_;
  int newest_version_ = 0;
  bool newest_released_ = false;
  int in_use_ = 0;
  std::map<int, Tensors> kept_;  // besides the newest
  std::vector<Tensors> spare_;   // memory of versions that ended
};

}  // namespace yoke::parallel
