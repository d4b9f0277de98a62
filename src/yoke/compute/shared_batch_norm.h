// Batch normalisation over a batch that is spread over several ranks.
//
// This folder does not know communicators: whoever does hands in a StatisticsExchange. Attached to a layer's
// tensors, it makes every way to compute with that layer share its statistics while training:
// compute::batch_norm and its fused forms, and torch::nn::BatchNorm's own forward().
#pragma once

#include <torch/types.h>

#include <memory>

namespace yoke::compute {

class StatisticsExchange {
 public:
  virtual ~StatisticsExchange() = default;
  // This rank's numbers [n] -> those of all ranks [ranks, n]. Forward calls it once for each layer.
  virtual torch::Tensor gather(const torch::Tensor& mine) = 0;
  // In place, over all ranks. Backward calls it once for each layer whose input wants a gradient.
  virtual void sum(torch::Tensor& numbers) = 0;
};

// Batch norm in training mode: statistics are those of all ranks' batches together, merged from (count, mean,
// M2) of each (Chan, Golub, LeVeque 1979), and so are the gradients of x; gradients of weight and bias are
// this rank's share. A rank may have no samples. weight, bias and running statistics may be undefined. The
// second run of a recomputed function does not exchange again. No second derivative.
torch::Tensor shared_batch_norm(const torch::Tensor& x, const torch::Tensor& weight,
                                const torch::Tensor& bias, const torch::Tensor& running_mean,
                                const torch::Tensor& running_var, double momentum, double eps,
                                const std::shared_ptr<StatisticsExchange>& exchange);

// The layer is known by its running mean, or else by its weight: one of them must be defined. Null detaches.
// May be called from several threads.
void attach_statistics_exchange(const torch::Tensor& weight, const torch::Tensor& running_mean,
                                std::shared_ptr<StatisticsExchange> exchange);
std::shared_ptr<StatisticsExchange> statistics_exchange_of(const torch::Tensor& weight,
                                                           const torch::Tensor& running_mean);

}  // namespace yoke::compute
