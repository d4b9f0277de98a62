// Compares the gradients of a function over all ranks with differences of its value. For tests.
#pragma once

#include <torch/types.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "yoke/comm/tensors/tensors.h"

namespace yoke::comm {

// `loss` of this rank's inputs and, through communication, of the others'.
using RankLoss = std::function<torch::Tensor(Communicator& comm, const std::vector<torch::Tensor>& inputs)>;

inline double total_loss(Communicator& comm, const std::vector<torch::Tensor>& inputs, const RankLoss& loss) {
  torch::NoGradGuard no_grad;
  torch::Tensor total = loss(comm, inputs).detach().clone();
  all_reduce(comm, total, ReduceOp::kSum, "total loss");
  return total.item<double>();
}

// The largest difference on this rank between what backward() gives for its inputs and the central difference
// of the sum of all losses. Collective: every rank calls it with inputs in fp64 of the same sizes.
inline double gradient_error(Communicator& comm, std::vector<torch::Tensor> inputs, const RankLoss& loss) {
  for (torch::Tensor& input : inputs) input = input.detach().clone().requires_grad_(true);
  loss(comm, inputs).backward();
  constexpr double kStep = 1e-6;
  double worst = 0;
  for (int rank = 0; rank < comm.size(); rank++)
    for (torch::Tensor& input : inputs)
      for (int64_t i = 0; i < input.numel(); i++) {
        bool mine = rank == comm.rank();
        double value[2];
        for (int side = 0; side < 2; side++) {
          double step = side == 0 ? -kStep : kStep;
          if (mine) input.mutable_data_ptr<double>()[i] += step;
          value[side] = total_loss(comm, inputs, loss);
          if (mine) input.mutable_data_ptr<double>()[i] -= step;
        }
        if (!mine) continue;
        double analytical =
            input.grad().defined() ? input.grad().contiguous().const_data_ptr<double>()[i] : 0.0;
        worst = std::max(worst, std::abs(analytical - (value[1] - value[0]) / (2 * kStep)));
      }
  return worst;
}

}  // namespace yoke::comm
