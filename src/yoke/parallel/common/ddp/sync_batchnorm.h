// BatchNorm with statistics over the batches of all ranks, as if one device had the whole batch.
//
//   yoke::convert_sync_batchnorm(*net, comm);            // all BatchNorm layers of a model, or
//   yoke::SyncBatchNorm norm(64, comm);                  // a layer of your own
//
// Every rank runs the same layers in the same order, forward and backward, with batches of any size, even
// empty. Each layer communicates once in forward (2 C + 1 numbers per rank) and once in backward (2 C). No
// communication in evaluation. Gradients of weight and bias are each rank's share of their sum: reduce them
// like all others (DistributedDataParallel does). The second run under yoke::recompute does not communicate.
//
// `comm` must outlive the layers' last backward(). A communicator of their own (comm.split(0, comm.rank(),
// "norm")) keeps the small messages from queueing behind gradient buckets.
#pragma once

#include <torch/nn/modules/batchnorm.h>

#include <memory>

#include "yoke/comm/communicator.h"

namespace yoke {

// Parameters, buffers and options of torch::nn::BatchNorm1d, 2d and 3d, under the same names. Input [N, C] or
// [N, C, ..].
class SyncBatchNormImpl : public torch::nn::NormImplBase<1, SyncBatchNormImpl, torch::nn::BatchNormOptions> {
 public:
  SyncBatchNormImpl(int64_t features, comm::Communicator& comm);
  SyncBatchNormImpl(const torch::nn::BatchNormOptions& options, comm::Communicator& comm);

  // Throws ConfigError if all ranks together have at most one value per channel in training.
  torch::Tensor forward(const torch::Tensor& input);
  void pretty_print(std::ostream& stream) const override;

 protected:
  void _check_input_dim(const torch::Tensor& input) override;

 private:
  comm::Communicator* comm_;
};
TORCH_MODULE(SyncBatchNorm);

// Makes every BatchNorm1d, 2d and 3d in `module` (including itself) synchronise over `comm`. The layers stay
// the same objects: members and optimizers that refer to them remain valid. Returns their number. Throws
// ConfigError that names a layer with neither parameters nor running statistics, which must be declared as
// SyncBatchNorm. (LibTorch's own forward() refuses a batch with a single value per channel before looking at
// other ranks; compute::batch_norm and SyncBatchNorm do not.)
int64_t convert_sync_batchnorm(torch::nn::Module& module, comm::Communicator& comm);

}  // namespace yoke
