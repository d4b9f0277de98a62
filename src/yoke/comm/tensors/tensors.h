// Blocking collectives on tensors.
//
// For asynchronous operations pass the tensor to the communicator itself:
//
//   auto pending = world.comm().all_reduce(tensor, yoke::ReduceOp::kMean, {.name = "bucket 3"});
//
// (contiguous, kept alive and left alone until pending.wait()). Tensors are cut and joined along their first
// dimension. Shapes are compared over ranks, so that a transposed tensor of the same size is an error. A
// tensor that is not contiguous is copied, and copied back where it is the result; so is a host tensor where
// the communicator moves GPU memory. None of this is seen by autograd: see autograd.h for operations that
// are.
//
// All throw ConfigError for an unsupported tensor (type, device, first dimension) and CommError like the
// communicator. `name` is shown in errors and compared across ranks.
#pragma once

#include <torch/types.h>

#include <string_view>
#include <vector>

#include "yoke/comm/communicator.h"

namespace yoke::comm {

// Throws ConfigError that lists the supported types.
DataType data_type_of(torch::ScalarType type);

// The tensor's own memory. Throws ConfigError unless contiguous and of a supported type.
Buffer buffer_of(const torch::Tensor& tensor);

template <>
struct BufferOf<torch::Tensor> {
  static Buffer of(const torch::Tensor& tensor) { return buffer_of(tensor); }
};

// In place. The result is the same on every rank (reduce: on the root; unspecified elsewhere).
void all_reduce(Communicator& comm, torch::Tensor tensor, ReduceOp op = ReduceOp::kSum,
                std::string_view name = {});
void reduce(Communicator& comm, torch::Tensor tensor, int root, ReduceOp op = ReduceOp::kSum,
            std::string_view name = {});
void broadcast(Communicator& comm, torch::Tensor tensor, int root, std::string_view name = {});

// [n, …] on each of N ranks -> [N n, …] in rank order. `rows`: first dimension of each rank if they differ. A
// scalar counts as [1].
torch::Tensor all_gather(Communicator& comm, const torch::Tensor& tensor, std::string_view name = {},
                         const std::vector<int64_t>& rows = {});

// [N n, …] -> [n, …]: this rank's part of the combined tensor.
torch::Tensor reduce_scatter(Communicator& comm, const torch::Tensor& tensor, ReduceOp op = ReduceOp::kSum,
                             std::string_view name = {});

// [N n, …] -> [N n, …]: part r is sent to rank r; part r of the result comes from rank r.
torch::Tensor all_to_all(Communicator& comm, const torch::Tensor& tensor, std::string_view name = {});

void send(Communicator& comm, const torch::Tensor& tensor, int peer, int tag = 0, std::string_view name = {});
// Receives into `tensor`, whose type and shape must equal the sender's.
void receive(Communicator& comm, torch::Tensor tensor, int peer, int tag = 0, std::string_view name = {});

}  // namespace yoke::comm
