#include "yoke/parallel/common/ddp/distributed_data_parallel.h"

#include <utility>

#include "yoke/parallel/common/ddp/reducer.h"

namespace yoke {

struct DistributedDataParallel::Impl {
  parallel::Reducer reducer;
};

DistributedDataParallel::DistributedDataParallel(torch::nn::Module& module, comm::Communicator& comm,
                                                 DdpOptions options)
    : impl_(new Impl{{module, comm, options}}) {}
DistributedDataParallel::~DistributedDataParallel() = default;

DistributedDataParallel::NoSync::NoSync(DistributedDataParallel& ddp)
    : ddp_(&ddp), before_(ddp.impl_->reducer.sync) {
  ddp.impl_->reducer.sync = false;
}
DistributedDataParallel::NoSync::NoSync(NoSync&& other) noexcept
    : ddp_(std::exchange(other.ddp_, nullptr)), before_(other.before_) {}
DistributedDataParallel::NoSync& DistributedDataParallel::NoSync::operator=(NoSync&& other) noexcept {
  if (this == &other) return *this;
  end();
  // A guard assigned while this one was active saw sync off: restore the state from before this one.
  const bool same = ddp_ == other.ddp_;
  ddp_ = std::exchange(other.ddp_, nullptr);
  if (!same) before_ = other.before_;
  if (ddp_ != nullptr) ddp_->impl_->reducer.sync = false;
  return *this;
}
DistributedDataParallel::NoSync::~NoSync() {
  end();
}
void DistributedDataParallel::NoSync::end() {
  if (ddp_ != nullptr) ddp_->impl_->reducer.sync = before_;
}

void DistributedDataParallel::reduce() {
  impl_->reducer.reduce();
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
