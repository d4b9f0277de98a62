// Collectives that autograd sees: the graph goes on over ranks.
//
// What is differentiated is the sum of all ranks' losses: each rank calls backward() on its own, and finds in
// its leaves the derivative of that sum. (Want the mean? Divide each loss by the number of ranks.)
//
// What a user must know:
// - Backward communicates too. Every rank must run it, and must use each result in what it differentiates (a
// result
//   that is not needed: add `0 * result.sum()`). A rank that leaves one out is an error on all ranks.
// - LibTorch runs backward in the reverse order of forward, on the thread that calls backward() (CPU) or one
// thread a
//   device (GPU). Ranks that do the same forward in the same order therefore communicate in the same order; a
//   rank that does not is found by the fingerprints. One backward() at a time on a communicator, and nothing
//   else on it from other threads meanwhile.
// - The communicator must live until backward is done.
// - Gradients are communicated under "grad of <name>".
// - There is no second derivative: backward() with create_graph throws ConfigError.
//
// Inputs are left as they are; results are new tensors. Errors as in tensors.h.
#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

#include "yoke/comm/communicator.h"

namespace yoke::autograd {

// sum, mean, prod, or max and min, whose gradient goes to the ranks that held the result, in equal shares.
torch::Tensor all_reduce(comm::Communicator& comm, const torch::Tensor& tensor, ReduceOp op = ReduceOp::kSum,
                         const std::string& name = "");

// Backward: reduce_scatter (unequal `rows`: all_reduce, of which each rank takes its rows).
torch::Tensor all_gather(comm::Communicator& comm, const torch::Tensor& tensor, const std::string& name = "",
                         const std::vector<int64_t>& rows = {});

// sum or mean. Backward: all_gather.
torch::Tensor reduce_scatter(comm::Communicator& comm, const torch::Tensor& tensor,
                             ReduceOp op = ReduceOp::kSum, const std::string& name = "");

// Backward: all_to_all.
torch::Tensor all_to_all(comm::Communicator& comm, const torch::Tensor& tensor, const std::string& name = "");

// The root's tensor on every rank. Backward: the sum of all gradients, at the root; zero elsewhere.
torch::Tensor broadcast(comm::Communicator& comm, const torch::Tensor& tensor, int root,
                        const std::string& name = "");

// Gradients travel back under tag + kGradientTag, so that they do not meet messages of the user's.
inline constexpr int kGradientTag = 32768;

// Returns a zero that stands for the message in the graph: its backward receives the gradient of `tensor`.
// Add it to the loss, or hand it to backward() itself, or as `tie` to a later operation. Requires tag <
// kGradientTag.
torch::Tensor send(comm::Communicator& comm, const torch::Tensor& tensor, int peer, int tag = 0,
                   const std::string& name = "");

// A tensor of `sizes` and `options` from `peer`. Backward: sends its gradient there. `tie`: what an earlier
// send() returned, when its gradient must be waited for after this one's has been sent (a rank that sends
// first and receives an answer). Requires tag < kGradientTag.
torch::Tensor receive(comm::Communicator& comm, torch::IntArrayRef sizes, const torch::TensorOptions& options,
                      int peer, int tag = 0, const std::string& name = "", const torch::Tensor& tie = {});

}  // namespace yoke::autograd
