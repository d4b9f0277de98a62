// Norms and overflow checks of sharded gradients, over the ranks that hold the other pieces.
#pragma once

#include <torch/types.h>

#include <functional>
#include <vector>

#include "yoke/comm/communicator.h"

namespace yoke::parallel {

// The ranks that hold other slices of the parameters. Without an axis this rank has whole parameters.
struct SliceAxis {
  comm::Communicator* comm = nullptr;
  // Whether this rank counts the parameter: of those that all ranks hold, exactly one does.
  std::function<bool(const torch::Tensor& parameter)> counts;

  explicit operator bool() const { return comm != nullptr; }
};

// Those of `parameters` that this rank counts.
std::vector<torch::Tensor> counted(const SliceAxis& axis, const std::vector<torch::Tensor>& parameters);

// Sum over the axis. Collective.
double sum_over(const SliceAxis& axis, double own);
// Whether it is true on any rank of the axis. Collective.
bool any_over(const SliceAxis& axis, bool own);

}  // namespace yoke::parallel
