#include "yoke/parallel/common/step_news.h"

#include "yoke/comm/tensors/tensors.h"

namespace yoke::parallel {

StepNews reduce_news(const StepNews& here, comm::Communicator& comm, torch::Device device, double replicas) {
  torch::Tensor sums = torch::tensor({0.0, here.stop_signal != 0 ? 1.0 : 0.0}, torch::kFloat64).to(device);
  sums[0] = here.loss.to(torch::kFloat64);
  comm::all_reduce(comm, sums, ReduceOp::kSum, "loss and stop");
  StepNews all;
  all.loss = sums[0] / replicas;
  torch::Tensor host = sums.cpu();
  if (host.const_data_ptr<double>()[1] == 0) return all;
  // Ranks may have got different signals: all stop with the same one.
  torch::Tensor signal = torch::tensor({here.stop_signal}, torch::kInt32);
  comm::all_reduce(comm, signal, ReduceOp::kMax, "stop signal");
  all.stop_signal = signal.item<int>();
  return all;
}

}  // namespace yoke::parallel
