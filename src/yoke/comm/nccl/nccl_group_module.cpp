#include <cstring>

#include "yoke/comm/modules/patience.h"
#include "yoke/comm/nccl/nccl_group.h"

namespace yoke::comm::nccl {
namespace {

std::string text_of(const ncclUniqueId& id) {
  return {id.internal, sizeof(id.internal)};
}

ncclUniqueId id_of(const std::string& text) {
  ncclUniqueId id;
  if (text.size() != sizeof(id.internal))
    throw CommError(
        "nccl: the identifier of the group has {} bytes instead of {}. Are all ranks the same build?",
        text.size(), sizeof(id.internal));
  std::memcpy(id.internal, text.data(), text.size());
  return id;
}

ncclUniqueId new_id() {
  ncclUniqueId id;
  ncclResult_t result = ncclGetUniqueId(&id);
  if (result != ncclSuccess)
    throw CommError("ncclGetUniqueId failed: {}. Check NCCL_SOCKET_IFNAME.", ncclGetErrorString(result));
  return id;
}

}  // namespace

void check(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return;
  throw CommError("{} failed: {}. Look at the kernel log and the other ranks for the first error.", call,
                  cudaGetErrorString(code));
}

Group::Group(const NcclSetup& setup, const std::string& key, int rank, int size, Deadline deadline)
    : failure_(setup.failure), compute_(setup.stream), device_(setup.device), rank_(rank), size_(size) {
  check(cudaSetDevice(device_), "cudaSetDevice");
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  check(cudaEventCreateWithFlags(&before_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  check(cudaEventCreateWithFlags(&after_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  ncclUniqueId id;
  if (rank == 0) {
    id = new_id();
    setup.put(key, text_of(id), deadline);
  } else {
    id = id_of(setup.get(key, deadline));
  }
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  call(ncclCommInitRankConfig(&comm_, size, id, rank, &config), "ncclCommInitRankConfig",
       "forming group " + key, deadline);
}

// ncclCommFinalize waits for the other ranks: finalise if they leave too, abort otherwise.
Group::~Group() {
  cudaSetDevice(device_);
  if (comm_ != nullptr) {
    ncclResult_t state = ncclCommFinalize(comm_);
    Deadline deadline = Deadline::after(5);
    Patience patience;
    while (state == ncclInProgress && !deadline.passed() && !(failure_ && failure_->set())) {
      if (ncclCommGetAsyncError(comm_, &state) != ncclSuccess) break;
      patience.rest();
    }
    state == ncclSuccess ? ncclCommDestroy(comm_) : ncclCommAbort(comm_);
  }
  cudaEventDestroy(before_);
  cudaEventDestroy(after_);
  cudaStreamDestroy(stream_);
}

void Group::enter(const std::string& doing) {
  if (failure_) failure_->check(doing.c_str());
  if (comm_ == nullptr) throw CommError("{}: this NCCL group was aborted after an earlier failure", doing);
  check(cudaSetDevice(device_), "cudaSetDevice");
}

void Group::follow_compute() {
  auto compute = static_cast<cudaStream_t>(compute_ ? compute_() : nullptr);
  check(cudaEventRecord(before_, compute), "cudaEventRecord");
  check(cudaStreamWaitEvent(stream_, before_, 0), "cudaStreamWaitEvent");
}

// Kernels that wait for a peer that never comes are only removed from the device by ncclCommAbort.
void Group::fail(const std::string& doing, const std::string& why) {
  {
    std::lock_guard lock(gate_);
    if (comm_ != nullptr) ncclCommAbort(comm_);
    comm_ = nullptr;
  }
  if (failure_) failure_->check(doing.c_str());
  throw CommError("{}: {} (rank {} of {}, backend nccl)", doing, why, rank_, size_);
}

void Group::look(const std::string& doing, Deadline deadline) {
  if (failure_ && failure_->set()) fail(doing, "the job has failed");
  if (deadline.passed())
    fail(doing, fmt::format("not complete after {:.1f} s, aborted. A rank has not called this operation or "
                            "has stopped: check it, or raise the timeout",
                            deadline.elapsed()));
}

void Group::settle(const char* what, const std::string& doing, Deadline deadline) {
  Patience patience;
  for (;;) {
    ncclResult_t state = ncclInProgress;
    ncclResult_t asked = comm_ == nullptr ? ncclInProgress : ncclCommGetAsyncError(comm_, &state);
    if (asked == ncclSuccess && state == ncclSuccess) return;
    if (asked != ncclInProgress && asked != ncclSuccess) state = asked;
    if (state != ncclInProgress)
      fail(doing,
           fmt::format("{} failed: {} ({})", what, ncclGetErrorString(state), ncclGetLastError(comm_)));
    look(doing, deadline);
    patience.rest();
  }
}

void Group::call(ncclResult_t result, const char* what, const std::string& doing, Deadline deadline) {
  if (result == ncclSuccess) return;
  if (result != ncclInProgress)
    fail(doing, fmt::format("{} failed: {} ({})", what, ncclGetErrorString(result), ncclGetLastError(comm_)));
  settle(what, doing, deadline);
}

cudaEvent_t Group::mark(cudaEvent_t event) {
  check(cudaEventRecord(event, stream_), "cudaEventRecord");
  return event;
}

bool Group::passed(cudaEvent_t event, const std::string& doing) {
  cudaError_t state = cudaEventQuery(event);
  if (state == cudaSuccess) return true;
  if (state != cudaErrorNotReady)
    fail(doing, fmt::format("the device failed: {}", cudaGetErrorString(state)));
  ncclResult_t error = ncclSuccess;
  if (ncclCommGetAsyncError(comm_, &error) != ncclSuccess ||
      (error != ncclSuccess && error != ncclInProgress))
    fail(doing, fmt::format("NCCL failed: {} ({})", ncclGetErrorString(error), ncclGetLastError(comm_)));
  return false;
}

void Group::finish(const std::string& doing, size_t bytes, Deadline deadline) {
  mark(after_);
  Patience patience(bytes / 16);  // device links are about 16 times faster than Patience assumes
  while (!passed(after_, doing)) {
    look(doing, deadline);
    patience.rest();
  }
}

}  // namespace yoke::comm::nccl
