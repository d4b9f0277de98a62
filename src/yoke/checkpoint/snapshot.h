// Copies of tensors in reusable host memory. begin() and fill() on one thread, wait_until_filled() on
// another.
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
  // Allocates and touches memory for tensors like these, unless it exists.
  void reserve(const std::vector<NamedTensor>& tensors);

  // Returns the (still unfilled) copies, row-major, on the CPU; valid until the next call. Memory is pinned
  // for CUDA tensors, for full bus bandwidth.
  const std::vector<NamedTensor>& begin(const std::vector<NamedTensor>& tensors);

  // Fills them in memory order. Returns when done.
  void fill(const std::vector<NamedTensor>& tensors);

  // Waits until the copies are complete up to `end`, while another thread fills them. Rethrows the error
  // passed to give_up().
  void wait_until_filled(const void* end);
  void give_up(std::exception_ptr why);

 private:
  void publish(const std::byte* end);
  bool fits(const std::vector<NamedTensor>& tensors) const;

  torch::Tensor memory_;
  bool pinned_ = false;
  std::vector<NamedTensor> copies_;  // inside memory_
  std::vector<size_t> order_;        // of the copies in memory

  std::mutex mutex_;
  std::condition_variable more_;
  const std::byte* filled_ = nullptr;  // everything below is complete
  std::exception_ptr given_up_;
};

}  // namespace yoke::checkpoint
