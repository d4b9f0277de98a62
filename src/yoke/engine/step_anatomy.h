// What a training step consists of: operations, bytes and the memory along it. For `yoke bench step
// --anatomy`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "yoke/engine/step_memory.h"
#include "yoke/engine/worker.h"

namespace yoke::engine {

struct StepAnatomy {
  double flops_per_sample = 0;  // forward and backward, recomputation not counted
  HeldMemory held;
  std::vector<std::string> block_names;
  std::vector<compute::BlockCost> blocks;         // with the batch of the options
  size_t forward_calls = 0;                       // of blocks, in a forward and backward
  int64_t activation_bytes = 0;                   // peak by the formula of compute/recompute_policy.h
  PassTrace pass;                                 // after a warm-up, the fastest of a few
  GradientSizes gradients;                        // of the first step
  StepNeeds needs;                                // {}: with a budget
  double free_bytes = 0;                          // for activations
  double matmul_flops = 0, copy_bytes_per_s = 0;  // of the device
};

// Takes about ten steps. Throws OutOfMemory. Requires: one device.
StepAnatomy dissect_step(const WorkerOptions& options);

}  // namespace yoke::engine
