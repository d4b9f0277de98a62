// What the slices of a layer exchange over the tensor axis.
#pragma once

#include <torch/types.h>

#include <functional>
#include <string>
#include <vector>

#include "yoke/comm/communicator.h"

namespace yoke::parallel {

// One thread at a time, as its communicator. None of this is seen by autograd.
class TensorAxis {
 public:
  // `sequence`: activations between pairs of layers are sharded along dim 1, [batch, sequence, width].
  // `comm` must outlive it.
  TensorAxis(comm::Communicator& comm, bool sequence) : comm_(comm), sequence_(sequence) {}

  comm::Communicator& comm() const { return comm_; }
  int rank() const { return comm_.rank(); }
  int size() const { return comm_.size(); }
  bool sequence() const { return sequence_; }

  // What enters a pair of layers, whole; x itself unless sequences are sharded.
  torch::Tensor enter(const torch::Tensor& x, const std::string& layer) const;
  // The sum over ranks of what leaves a pair: all of it, or this rank's part of the sequence. May use and
  // return y's memory.
  torch::Tensor leave(const torch::Tensor& y, const std::string& layer) const;
  // leave(), begun now; the result of calling the function is its result.
  std::function<torch::Tensor()> begin_leave(const torch::Tensor& y, const std::string& layer) const;

  // The slices of dim 1 side by side; `sizes`: of each rank.
  torch::Tensor gather_features(const torch::Tensor& x, const std::vector<int64_t>& sizes,
                                const std::string& layer) const;

 private:
  torch::Tensor by_ranks(const torch::Tensor& x, const std::string& layer) const;

  comm::Communicator& comm_;
  bool sequence_;
};

}  // namespace yoke::parallel
