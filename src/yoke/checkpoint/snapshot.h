// Copies of tensors in host memory that is used again and again.
#pragma once

#include <torch/types.h>

#include <vector>

#include "yoke/checkpoint/tensors.h"

namespace yoke::checkpoint {

class Snapshot {
 public:
  // Makes memory for tensors like these, and touches it. Does nothing where it is there.
  void reserve(const std::vector<NamedTensor>& tensors);

  // Copies of all tensors, row-major, on the CPU; valid until the next call. Returns when the copies are
  // complete. Memory is pinned for CUDA tensors, so that they travel at the bus's speed.
  const std::vector<NamedTensor>& take(const std::vector<NamedTensor>& tensors);

 private:
  bool fits(const std::vector<NamedTensor>& tensors) const;

  torch::Tensor memory_;
  bool pinned_ = false;
  std::vector<NamedTensor> copies_;  // they lie in memory_
};

}  // namespace yoke::checkpoint
