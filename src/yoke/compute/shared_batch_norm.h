// Batch normalisation over a batch that is distributed over several ranks.
//
// This folder does not depend on communicators: the caller provides a StatisticsExchange. Attached to a
// layer's tensors, it makes every computation with that layer share its statistics in training:
// compute::batch_norm and its fused forms, and torch::nn::BatchNorm's own forward().
#pragma once

#include <torch/types.h>

#include <memory>

namespace yoke::compute {

class StatisticsExchange {
 public:
  virtual ~StatisticsExchange() = default;
  // This rank's values [n] -> those of all ranks [ranks, n]. Called once per layer in forward.
  virtual torch::Tensor gather(const torch::Tensor& mine) = 0;
  // In place, over all ranks. Called once in backward per layer whose input requires grad.
  virtual void sum(torch::Tensor& numbers) = 0;
};

// Batch norm in training mode: statistics and gradients of x are those over all ranks' batches, merged from
// (count, mean, M2) of each (Chan, Golub, LeVeque 1979); gradients of weight and bias are this rank's share.
// A rank may have no samples. weight, bias and running statistics may be undefined. The second run of a
// recomputed function does not communicate. No second derivative.
torch::Tensor shared_batch_norm(const torch::Tensor& x, const torch::Tensor& weight,
                                const torch::Tensor& bias, const torch::Tensor& running_mean,
                                const torch::Tensor& running_var, double momentum, double eps,
                                const std::shared_ptr<StatisticsExchange>& exchange);

// The layer is identified by its running mean, or else by its weight: one of them must be defined. nullptr
// detaches. Thread-safe.
void attach_statistics_exchange(const torch::Tensor& weight, const torch::Tensor& running_mean,
                                std::shared_ptr<StatisticsExchange> exchange);
std::shared_ptr<StatisticsExchange> statistics_exchange_of(const torch::Tensor& weight,
                                                           const torch::Tensor& running_mean);

}  // namespace yoke::compute
