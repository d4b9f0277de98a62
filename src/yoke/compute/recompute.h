// Activation checkpointing: drop activations in forward, recompute them in backward.
#pragma once

#include <torch/types.h>

#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include "yoke/compute/recompute_policy.h"

namespace yoke {

using RecomputeFunction = std::function<std::vector<torch::Tensor>(const std::vector<torch::Tensor>&)>;

// Runs `function` on `inputs` without keeping what backward would need; backward runs it once more.
// Gradients, including those of parameters captured by `function`, are bit-identical to a plain call: random
// state (dropout; on CUDA that of the inputs' devices) and autocast are restored for the second run, and
// BatchNorm statistics are not updated again (see in_recomputation()). Calls nest.
//
// `function` must not modify its inputs or state that its result depends on, and what it captures must stay
// alive until backward. Captured parameters get their gradient from backward(), not from
// torch::autograd::grad; backward with create_graph is an error. If a tensor has three or more uses, some
// inside and some outside, their gradients may be added in another order.
//
//   torch::Tensor y = yoke::recompute([&](const torch::Tensor& x) { return block(x); }, x);
//   std::vector<torch::Tensor> both = yoke::recompute(function_of_a_list, {x, y});
std::vector<torch::Tensor> recompute_list(const RecomputeFunction& function,
                                          const std::vector<torch::Tensor>& inputs);

// Templates, so that a generic lambda is only instantiated for what it is called with.
template <class Function>
std::vector<torch::Tensor> recompute(Function&& function, const std::vector<torch::Tensor>& inputs) {
  return recompute_list(RecomputeFunction(std::forward<Function>(function)), inputs);
}

// For a function of one tensor. If `function` takes or returns a list, {x} is a list of one.
template <class Function>
auto recompute(Function&& function, const torch::Tensor& input) {
  using Plain = std::decay_t<Function>;
  // Known without instantiating the body of a generic lambda.
  constexpr bool one_signature = std::is_pointer_v<Plain> || requires {
    &Plain::operator();
  };
  if constexpr (one_signature && !std::is_invocable_v<Plain&, const torch::Tensor&>) {
    return recompute_list(RecomputeFunction(std::forward<Function>(function)), {input});
  } else if constexpr (!std::is_convertible_v<std::invoke_result_t<Plain&, const torch::Tensor&>,
                                              torch::Tensor>) {
    return recompute_list(RecomputeFunction(std::forward<Function>(function)), {input});
  } else {
    auto on_list = [own = Plain(std::forward<Function>(function))](
                       const std::vector<torch::Tensor>& list) mutable -> std::vector<torch::Tensor> {
      return {own(std::as_const(list[0]))};
    };
    return recompute_list(std::move(on_list), {input})[0];
  }
}

// True during the second run in backward: layers with running statistics must not update them.
bool in_recomputation();

// Runs `function` at the end of the current backward(), in its thread; backward() rethrows its exceptions.
// Inside a recomputed function that is the end of the user's backward(), not of the inner one. Requires:
// called from backward (a hook).
void at_end_of_backward(std::function<void()> function);

// Runs a chain of blocks, each on the results of the previous one, and recomputes the marked segments.
// Requires: `segments` cover the blocks in order (compute::recompute_segments creates them). Empty: nothing
// is recomputed.
std::vector<torch::Tensor> run_blocks(const std::vector<RecomputeFunction>& blocks,
                                      const std::vector<torch::Tensor>& inputs,
                                      const std::vector<compute::Segment>& segments);

// While it exists, this thread computes as in a second run: see in_recomputation().
class RecomputationMark {
 public:
  RecomputationMark();
  ~RecomputationMark();
  RecomputationMark(const RecomputationMark&) = delete;
  RecomputationMark& operator=(const RecomputationMark&) = delete;
};

// Runs the chain forward once, one block at a time, and measures what each block keeps for backward, with no
// more memory than the largest needs. Changes neither random state nor statistics (see in_recomputation()).
std::vector<compute::BlockCost> measure_blocks(const std::vector<RecomputeFunction>& blocks,
                                               const std::vector<torch::Tensor>& inputs);

}  // namespace yoke
