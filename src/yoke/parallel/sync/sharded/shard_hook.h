// Hooks that leave each rank with its own part of the averages only.
#pragma once

#include <vector>

#include "yoke/parallel/common/ddp/comm_hook.h"

namespace yoke::parallel {

class ShardHook : public CommHook {
 public:
  // This rank's part of the averages of a bucket: of all backward() passes since begin_step(). Valid until
  // the next one. Undefined where there was none.
  torch::Tensor part(size_t bucket) const {
    return bucket < parts_.size() ? parts_[bucket] : torch::Tensor();
  }
  virtual void begin_step() = 0;

 protected:
  torch::Tensor& part_of(const GradientBucket& bucket) {
    auto index = static_cast<size_t>(bucket.index);
    if (parts_.size() <= index) parts_.resize(index + 1);
    return parts_[index];
  }
  std::vector<torch::Tensor> parts_;
};

}  // namespace yoke::parallel
