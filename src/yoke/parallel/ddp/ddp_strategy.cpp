#include "yoke/parallel/ddp/ddp_strategy.h"

#include <cmath>

#include "yoke/comm/tensors/tensors.h"

namespace yoke::parallel {

DdpStrategy::DdpStrategy(const models::Model& model, optim::Optimizer& optimizer, optim::GradScaler& scaler,
                         OneDeviceOptions options, comm::Communicator& comm, const DdpOptions& ddp)
    : comm_(comm),
      where_(options.device),
      device_(model, optimizer, scaler, std::move(options)),
      ddp_(*model.module, comm, ddp) {}

ComputeResult DdpStrategy::compute(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target,
                                   const MicroBatch& micro) {
  compute::GradientHomes::Use homes(ddp_.gradient_homes());
  if (micro.last) return device_.compute(inputs, target, micro);
  auto local = ddp_.no_sync();
  return device_.compute(inputs, target, micro);
}

StepNews DdpStrategy::agree(const StepNews& here) {
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
