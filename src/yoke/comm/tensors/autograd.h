// Differentiable collectives: gradients flow across ranks.
//
// The objective is the sum of all ranks' losses: each rank calls backward() on its own loss, and its leaves
// get the gradient of that sum. For the mean, divide each loss by the number of ranks.
//
// Rules:
// - Backward communicates too. Every rank must run it and must use each result in its loss (add
//   `0 * result.sum()` for one that is not needed). A rank that leaves one out is an error on all ranks.
// - LibTorch runs backward in reverse order of forward, on the thread that calls backward() (CPU) or one
//   thread per device (GPU). Ranks with the same forward therefore communicate in the same order; others are
//   detected by their fingerprints. One backward() at a time per communicator, and nothing else on it
//   meanwhile.
// - The communicator must outlive backward.
// - Gradients are communicated under the name "grad of <name>".
// - No second derivatives: backward() with create_graph throws ConfigError.
//
// Inputs are not modified; results are new tensors. Errors as in tensors.h.
#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

#include "yoke/comm/communicator.h"

namespace yoke::autograd {

// sum, mean, prod, max, min. The gradient of max and min is divided equally among the ranks that hold the
// result.
torch::Tensor all_reduce(comm::Communicator& comm, const torch::Tensor& tensor, ReduceOp op = ReduceOp::kSum,
                         const std::string& name = "");

// Backward: reduce_scatter (with unequal `rows`: all_reduce, of which each rank takes its rows).
torch::Tensor all_gather(comm::Communicator& comm, const torch::Tensor& tensor, const std::string& name = "",
                         const std::vector<int64_t>& rows = {});

// sum or mean. Backward: all_gather.
torch::Tensor reduce_scatter(comm::Communicator& comm, const torch::Tensor& tensor,
                             ReduceOp op = ReduceOp::kSum, const std::string& name = "");

// Backward: all_to_all.
torch::Tensor all_to_all(comm::Communicator& comm, const torch::Tensor& tensor, const std::string& name = "");

// The root's tensor on every rank. Backward: the root gets the sum of all gradients, other ranks zero.
torch::Tensor broadcast(comm::Communicator& comm, const torch::Tensor& tensor, int root,
                        const std::string& name = "");

// Gradients are sent under tag + kGradientTag, apart from the user's messages.
inline constexpr int kGradientTag = 32768;

// Returns a zero that represents the message in the graph: its backward receives the gradient of `tensor`.
// Add it to the loss, call backward() on it, or pass it as `tie` to a later receive(). Requires tag <
// kGradientTag.
torch::Tensor send(comm::Communicator& comm, const torch::Tensor& tensor, int peer, int tag = 0,
                   const std::string& name = "");

// A tensor of `sizes` and `options` from `peer`. Backward: sends its gradient there. `tie`: result of an
// earlier send() whose gradient arrives only after the gradient of this tensor has been sent (a rank that
// sends first and then receives a reply). Requires tag < kGradientTag.
torch::Tensor receive(comm::Communicator& comm, torch::IntArrayRef sizes, const torch::TensorOptions& options,
                      int peer, int tag = 0, const std::string& name = "", const torch::Tensor& tie = {});

}  // namespace yoke::autograd
