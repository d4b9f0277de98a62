// Validates the arguments of operations and converts them to the form backends take.
#pragma once

#include "yoke/comm/backend.h"

namespace yoke::comm {

// Sizes and roots are checked against a group of `size` ranks. Throws ConfigError that names the operation,
// the values and what is accepted.
struct RequestChecker {
  int rank = 0;
  int size = 1;

  Operation all_reduce(Buffer data, ReduceOp op) const;
  Operation reduce(Buffer data, int root, ReduceOp op) const;
  Operation reduce_scatter(ConstBuffer input, Buffer output, ReduceOp op) const;
  Operation all_gather(ConstBuffer input, Buffer output, std::span<const int64_t> counts) const;
  Operation all_to_all(ConstBuffer input, Buffer output) const;
  Operation broadcast(Buffer data, int root) const;
  Operation gather(ConstBuffer input, Buffer output, int root) const;
  Operation scatter(ConstBuffer input, Buffer output, int root) const;
  Operation barrier() const;
  Transfer transfer(bool is_send, ConstBuffer data, int peer, int tag) const;
};

}  // namespace yoke::comm
