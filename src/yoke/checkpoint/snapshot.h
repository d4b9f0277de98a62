// Copies of tensors in host memory that is used again and again.
#pragma once

#include <torch/types.h>

#include <condition_variable>
#include <exception>
#include <mutex>
#include <vector>

#include "yoke/checkpoint/tensors.h"

namespace yoke::checkpoint {

class Snapshot {
 public:
  // Makes memory for tensors like these, and touches it. Does nothing where it is there.
  void reserve(const std::vector<NamedTensor>& tensors);

  // Where the copies will lie, row-major, on the CPU; valid until the next call. Memory is pinned for CUDA
  // tensors, so that they travel at the bus's speed.
  const std::vector<NamedTensor>& begin(const std::vector<NamedTensor>& tensors);

  // Fills them, in the order in which they lie in memory. Returns when that is done.
  void fill(const std::vector<NamedTensor>& tensors);

  // Waits until the copies are complete up to `end`, while another thread fills. Throws what that one gave up
  // with.
  void wait_until_filled(const void* end);
  void give_up(std::exception_ptr why);

 private:
  void publish(const std::byte* end);
  bool fits(const std::vector<NamedTensor>& tensors) const;

  torch::Tensor memory_;
  bool pinned_ = false;
  std::vector<NamedTensor> copies_;  // they lie in memory_
  std::vector<size_t> order_;        // of the copies, in memory

  std::mutex mutex_;
  std::condition_variable more_;
  const std::byte* filled_ = nullptr;  // everything below is complete
  std::exception_ptr given_up_;
};

}  // namespace yoke::checkpoint
