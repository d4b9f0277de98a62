#include "yoke/parallel/ddp/ddp_strategy.h"

#include <cmath>
#include <utility>

#include "yoke/comm/tensors/tensors.h"

namespace yoke::parallel {
namespace {

// Steps between two looks at the noise, each of which reads all gradients twice more.
constexpr int64_t kNoiseEvery = 50;

// What an optimizer that evaluates the loss again decides by is the same on all ranks: the mean of their
// losses, and rank 0's numbers where each has computed its own.
OneDeviceOptions with_loss_of_all(OneDeviceOptions options, comm::Communicator& comm) {
  if (comm.size() == 1) return options;
  options.mean_over_replicas = [&comm](const torch::Tensor& loss) {
    torch::Tensor mean = loss.detach().to(torch::kFloat64).reshape({1}).clone();
    comm::all_reduce(comm, mean, ReduceOp::kMean, "loss of a line step");
    return mean[0];
  };
  options.same_on_replicas = [&comm](const torch::Tensor& number) {
    torch::Tensor same = number.detach().reshape({-1}).clone();
    comm::broadcast(comm, same, 0, "number of a line step");
    return same.view(number.sizes());
  };
  return options;
}

}  // namespace

DdpStrategy::DdpStrategy(const models::Model& model, optim::Optimizer& optimizer, optim::GradScaler& scaler,
                         OneDeviceOptions options, comm::Communicator& comm, const DdpOptions& ddp)
    : comm_(comm),
      where_(options.device),
      device_(model, optimizer, scaler, with_loss_of_all(std::move(options), comm)),
      ddp_(*model.module, comm, ddp) {}

void DdpStrategy::acquire() {
  device_.acquire();
  samples_ = 0;
  measuring_ = steps_ % kNoiseEvery == 0;
  if (measuring_) ddp_.measure_noise();
}

ComputeResult DdpStrategy::compute(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target,
                                   const MicroBatch& micro) {
  samples_ += static_cast<double>(target.dim() > 0 ? target.size(0) : 1);
  compute::GradientHomes::Use homes(ddp_.gradient_homes());
  if (!micro.last) {
    auto local = ddp_.no_sync();
    return device_.compute(inputs, target, micro);
  }
  ComputeResult result = device_.compute(inputs, target, micro);
  ++steps_;
  return result;
}

std::optional<Communication> DdpStrategy::communication() const {
  const DdpStep& step = ddp_.last_step();
  Communication all{step.comm_seconds, step.exposed_seconds, {}};
  for (const DdpStep::Bucket& bucket : step.buckets) all.buckets.push_back({bucket.started, bucket.ended});
  return all;
}

StepNews DdpStrategy::agree(const StepNews& here) {
  if (std::exchange(measuring_, false)) {
    const DdpStep& step = ddp_.last_step();
    noise_.add(step.small_norm2, step.big_norm2, samples_, samples_ * comm_.size());
  }
  double stops = here.stop_signal != 0 ? 1 : 0;
  torch::Tensor told = torch::tensor({0.0, static_cast<double>(here.stop_signal), stops}, torch::kFloat64);
  told = told.to(where_);
  told[0] = here.loss.to(torch::kFloat64);
  comm::all_reduce(comm_, told, ReduceOp::kSum, "loss and stop");
  StepNews all;
  all.loss = told[0] / comm_.size();
  torch::Tensor host = told.cpu();
  const double* sums = host.const_data_ptr<double>();
  if (sums[2] > 0) all.stop_signal = static_cast<int>(std::lround(sums[1] / sums[2]));
  return all;
}

}  // namespace yoke::parallel
