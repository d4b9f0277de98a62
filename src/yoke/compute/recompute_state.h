// What the result of a function depends on besides its inputs: random generators and autocast.
#pragma once

#include <ATen/core/Generator.h>
#include <torch/types.h>

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace yoke {

// Random state of the CPU and of the CUDA devices of some tensors.
class RandomState {
 public:
  // Captures the current state.
  explicit RandomState(const std::vector<torch::Tensor>& tensors);
  void restore() const;
  // The current state of the same generators.
  RandomState again() const;
  // A CUDA graph being captured has no state to restore: throws ConfigError if random numbers were drawn into
  // it since construction.
  void check_capture() const;

 private:
  explicit RandomState(std::vector<at::Generator> generators);
  void capture();

  std::vector<at::Generator> generators_;
  std::vector<torch::Tensor> states_;                         // one per generator
  std::vector<std::pair<int, uint64_t>> offsets_in_capture_;  // CUDA device and its offset
};

// Restores random state when destroyed.
class RandomStateGuard {
 public:
  explicit RandomStateGuard(const RandomState& like) : before_(like.again()) {}
  ~RandomStateGuard() { before_.restore(); }
  RandomStateGuard(const RandomStateGuard&) = delete;
  RandomStateGuard& operator=(const RandomStateGuard&) = delete;

 private:
  RandomState before_;
};

// Autocast of this thread.
class AutocastState {
 public:
  AutocastState();  // captures the current state
  void restore() const;

 private:
  struct Device {
    bool enabled;
    torch::ScalarType type;
  };
  std::array<Device, 2> devices_;  // CPU, CUDA
  bool cache_;
};

// While it exists, autocast is as in `state`, with its own cast cache: casts made for another graph, or
// without one, would lose gradients.
class AutocastStateGuard {
 public:
  explicit AutocastStateGuard(const AutocastState& state);
  ~AutocastStateGuard();
  AutocastStateGuard(const AutocastStateGuard&) = delete;
  AutocastStateGuard& operator=(const AutocastStateGuard&) = delete;

 private:
  AutocastState before_;
};

}  // namespace yoke
