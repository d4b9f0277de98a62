#include "yoke/parallel/common/ddp/ddp_strategy.h"

#include <utility>

namespace yoke::parallel {
namespace {

// Steps between two noise measurements, each of which reads all gradients twice more.
constexpr int64_t kNoiseEvery = 50;

}  // namespace

DdpStrategy::DdpStrategy(const models::Model& model, optim::Optimizer& optimizer, optim::GradScaler& scaler,
                         OneDeviceOptions options, comm::Communicator& comm, const DdpOptions& ddp)
    : Replica(model, optimizer, scaler, options, comm),
      ddp_(*model.module, comm, ddp),
      holds_whole_(!options.slices) {}

void DdpStrategy::acquire() {
  device().acquire();
  samples_ = 0;
  measuring_ = holds_whole_ && steps_ % kNoiseEvery == 0;
  if (measuring_) ddp_.measure_noise();
}

void DdpStrategy::count_batch(const torch::Tensor& target) {
  samples_ += static_cast<double>(target.dim() > 0 ? target.size(0) : 1);
}

ComputeResult DdpStrategy::compute(const std::vector<torch::Tensor>& inputs, const torch::Tensor& target,
                                   const MicroBatch& micro) {
  count_batch(target);
  compute::GradientHomes::Use homes(ddp_.gradient_homes());
  if (!micro.last) {
    auto local = ddp_.no_sync();
    return device().compute(inputs, target, micro);
  }
  ComputeResult result = device().compute(inputs, target, micro);
  count_step();
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
    noise_.add(step.small_norm2, step.big_norm2, samples_, samples_ * comm().size());
  }
  return Replica::agree(here);
}

}  // namespace yoke::parallel
