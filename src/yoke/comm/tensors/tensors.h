// Communicators for tensors: types, shapes and layouts taken care of.
//
// These wait. For operations that run on, hand buffer_of() to the communicator itself. Tensors are cut and
// joined along their first dimension. Shapes are compared over ranks, so that a transposed tensor of the same
// size is an error. A tensor that is not contiguous is copied, and copied back where it is the result. None
// of this is seen by autograd: see autograd.h for operations that are.
//
// All throw ConfigError for a tensor that cannot be moved (type, device, first dimension) and CommError as
// the communicator does. `name` is shown in errors and compared over ranks.
#pragma once

#include <torch/types.h>

#include <string_view>
#include <vector>

#include "yoke/comm/communicator.h"

namespace yoke::comm {

// Throws ConfigError that lists what is accepted.
DataType data_type_of(torch::ScalarType type);

// The tensor's own memory. Requires: contiguous. Throws ConfigError.
Buffer buffer_of(const torch::Tensor& tensor);

// In place: every rank has the same numbers afterwards (reduce: the root, others are unspecified).
void all_reduce(Communicator& comm, torch::Tensor tensor, ReduceOp op = ReduceOp::kSum,
                std::string_view name = {});
void reduce(Communicator& comm, torch::Tensor tensor, int root, ReduceOp op = ReduceOp::kSum,
            std::string_view name = {});
void broadcast(Communicator& comm, torch::Tensor tensor, int root, std::string_view name = {});

// [n, …] on each of N ranks -> [N n, …], in the order of ranks. `rows`: the first dimension of each rank
// where they differ. A scalar counts as [1].
torch::Tensor all_gather(Communicator& comm, const torch::Tensor& tensor, std::string_view name = {},
                         const std::vector<int64_t>& rows = {});

// [N n, …] -> [n, …]: this rank's part of the combination.
torch::Tensor reduce_scatter(Communicator& comm, const torch::Tensor& tensor, ReduceOp op = ReduceOp::kSum,
                             std::string_view name = {});

// [N n, …] -> [N n, …]: part r goes to rank r, part r of the result came from rank r.
torch::Tensor all_to_all(Communicator& comm, const torch::Tensor& tensor, std::string_view name = {});

void send(Communicator& comm, const torch::Tensor& tensor, int peer, int tag = 0, std::string_view name = {});
// Into `tensor`, whose type and shape must be the sender's.
void receive(Communicator& comm, torch::Tensor tensor, int peer, int tag = 0, std::string_view name = {});

}  // namespace yoke::comm
