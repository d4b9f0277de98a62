// Activation checkpointing: forget activations in forward, compute them again in backward.
#pragma once

#include <torch/types.h>

#include <functional>
#include <vector>

#include "yoke/compute/recompute_policy.h"

namespace yoke {

using RecomputeFunction = std::function<std::vector<torch::Tensor>(const std::vector<torch::Tensor>&)>;

// Runs `function` on `inputs` without keeping what backward would need; backward runs it once more.
// Gradients, also those of parameters that `function` captures, are bit-identical to a plain call: random
// state (dropout; on CUDA that of the inputs' devices) and autocast are put back for the second run, and
// BatchNorm statistics are not updated again (see in_recomputation()). Calls nest.
//
// `function` must not change its inputs nor state that its result depends on, and what it captures must stay
// alive until backward. Parameters it captures get their gradient from backward(), not from
// torch::autograd::grad; backward with create_graph is an error. Where one tensor has three or more uses,
// some inside and some outside, their gradients may be added in another order.
std::vector<torch::Tensor> recompute(const RecomputeFunction& function,
                                     const std::vector<torch::Tensor>& inputs);

// True while backward runs a function again: layers with running statistics leave them alone then.
bool in_recomputation();

// Runs `function` when the backward() that is under way has ended, in its thread; what it throws, backward()
// throws. Inside a recomputed function that is the end of the backward() that the user called, not of the one
// inside. Requires: called from backward (a hook).
void at_end_of_backward(std::function<void()> function);

// Runs a chain of blocks, each on the results of the one before, and recomputes the segments that say so.
// Requires: `segments` cover the blocks in order (compute::recompute_segments makes them). Empty: nothing is
// recomputed.
std::vector<torch::Tensor> run_blocks(const std::vector<RecomputeFunction>& blocks,
                                      const std::vector<torch::Tensor>& inputs,
                                      const std::vector<compute::Segment>& segments);

// While it lives, this thread computes as in a second run: see in_recomputation().
class RecomputationMark {
 public:
  RecomputationMark();
  ~RecomputationMark();
  RecomputationMark(const RecomputationMark&) = delete;
  RecomputationMark& operator=(const RecomputationMark&) = delete;
};

// Runs the chain forward once and counts what each block leaves for backward, one block at a time: no more
// memory than the largest one needs. Changes neither random state nor statistics (see in_recomputation()).
std::vector<compute::BlockCost> measure_blocks(const std::vector<RecomputeFunction>& blocks,
                                               const std::vector<torch::Tensor>& inputs);

}  // namespace yoke
