#include "yoke/parallel/ddp/distributed_data_parallel.h"

#include "yoke/parallel/ddp/reducer.h"

namespace yoke {

struct DistributedDataParallel::Impl {
  parallel::Reducer reducer;
};

DistributedDataParallel::DistributedDataParallel(torch::nn::Module& module, comm::Communicator& comm,
                                                 DdpOptions options)
    : impl_(new Impl{{module, comm, options}}) {}
DistributedDataParallel::~DistributedDataParallel() = default;

DistributedDataParallel::NoSync::NoSync(DistributedDataParallel& ddp)
    : ddp_(ddp), before_(ddp.impl_->reducer.sync) {
  ddp.impl_->reducer.sync = false;
}
DistributedDataParallel::NoSync::~NoSync() {
  ddp_.impl_->reducer.sync = before_;
}

void DistributedDataParallel::join(const std::function<void()>& loop) {
  impl_->reducer.join(loop);
}
void DistributedDataParallel::share_buffers() {
  impl_->reducer.share_buffers();
}
void DistributedDataParallel::set_hook(std::shared_ptr<CommHook> hook) {
  impl_->reducer.set_hook(std::move(hook));
}
void DistributedDataParallel::set_layout(parallel::BucketLayout layout) {
  impl_->reducer.set_layout(std::move(layout));
}
const CommHook* DistributedDataParallel::hook() const {
  return &impl_->reducer.hook();
}
void DistributedDataParallel::measure_noise() {
  impl_->reducer.measure_noise();
}
compute::GradientHomes& DistributedDataParallel::gradient_homes() {
  return impl_->reducer.homes;
}
const DdpStep& DistributedDataParallel::last_step() const {
  return impl_->reducer.last_step();
}
const DdpOptions& DistributedDataParallel::options() const {
  return impl_->reducer.options();
}
comm::Communicator& DistributedDataParallel::comm() const {
  return impl_->reducer.comm();
}

}  // namespace yoke
