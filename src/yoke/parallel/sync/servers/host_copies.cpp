#include "yoke/parallel/sync/servers/host_copies.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace yoke::parallel {

HostCopies::HostCopies(torch::Device device) : device_(device) {
  if (!device.is_cpu()) stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

// What the copies read may still be computed.
void HostCopies::follow_device() {
  c10::Event computed(device_.type());
  computed.record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  computed.block(*stream_);
}

void HostCopies::copy(torch::Tensor& to, const torch::Tensor& from) {
  if (!stream_ || from.device().is_cpu()) {
    to.copy_(from);
    return;
  }
  follow_device();
  c10::StreamGuard beside(*stream_);
  to.copy_(from, /*non_blocking=*/true);
}

HostCopies::Mark HostCopies::mark() {
  Mark result;
  if (!stream_) return result;
  follow_device();
  result.event_ = std::make_shared<c10::Event>(device_.type());
  result.event_->record(*stream_);
  return result;
}

}  // namespace yoke::parallel
