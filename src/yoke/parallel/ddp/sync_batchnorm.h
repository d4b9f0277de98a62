// BatchNorm whose statistics are those of all ranks' batches together, as if one device had the whole batch.
//
//   yoke::convert_sync_batchnorm(*net, comm);            // all BatchNorm layers of a model, or
//   yoke::SyncBatchNorm norm(64, comm);                  // a layer of your own
//
// Every rank runs the same layers in the same order, forward and backward, with batches of any size, also
// none. Each layer communicates once in forward (2 C + 1 numbers of each rank) and once in backward (2 C). In
// evaluation nothing is exchanged. Gradients of weight and bias are each rank's share of their sum: combine
// them as all others (DistributedDataParallel does). The second run of yoke::recompute does not communicate.
//
// `comm` must outlive the layers' last backward(). One of their own (comm.split(0, comm.rank(), "norm"))
// keeps the small messages from waiting behind buckets of gradients.
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

  // Throws ConfigError when all ranks together have no more than one number a channel in training.
  torch::Tensor forward(const torch::Tensor& input);
  void pretty_print(std::ostream& stream) const override;

 protected:
  void _check_input_dim(const torch::Tensor& input) override;

 private:
  comm::Communicator* comm_;
};
TORCH_MODULE(SyncBatchNorm);

// Lets every BatchNorm1d, 2d and 3d below (and including) `module` share its statistics over `comm`. The
// layers stay the objects they were: members and optimizers that hold them or their parameters remain right.
// Returns how many there are. Throws ConfigError that names a layer with neither parameters nor running
// statistics, which must be declared as SyncBatchNorm. (Called by forward() of its own, LibTorch's layer
// refuses a batch of a single number a channel before it looks at other ranks; compute::batch_norm and
// SyncBatchNorm do not.)
int64_t convert_sync_batchnorm(torch::nn::Module& module, comm::Communicator& comm);

}  // namespace yoke
