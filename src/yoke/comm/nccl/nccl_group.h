// One NCCL communicator with its stream, polled instead of synchronised. Part of the module only.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <memory>
#include <mutex>
#include <string>

#include "yoke/comm/nccl/nccl.h"

namespace yoke::comm::nccl {

// Throws CommError with CUDA's error text unless `code` is cudaSuccess.
void check(cudaError_t code, const char* call);

// NCCL calls go through call(), which waits until NCCL has enqueued them. NCCL allows one thread at a time
// per communicator: hold gate() during calls, not while waiting.
class Group {
 public:
  // Forms the group `key` of `size` ranks: rank 0 publishes the NCCL id under `key`, the others read it.
  // Throws CommError at the deadline.
  Group(const NcclSetup& setup, const std::string& key, int rank, int size, Deadline deadline);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  ncclComm_t comm() const { return comm_; }
  cudaStream_t stream() const { return stream_; }
  std::recursive_mutex& gate() { return gate_; }

  // Selects the group's device for this thread. Throws CommError if the job or the group has failed.
  void enter(const std::string& doing);
  // Makes stream() wait for the work that is on the compute stream now.
  void follow_compute();
  // Waits until NCCL has accepted the call that returned `result`; throws CommError if it refuses.
  void call(ncclResult_t result, const char* what, const std::string& doing, Deadline deadline);
  // Waits for all work on stream(). Aborts the group and throws CommError at the deadline, on a failure of
  // the job, or on an NCCL error.
  void finish(const std::string& doing, size_t bytes, Deadline deadline);

  // Non-blocking variant: mark() records an event after the work, passed() is true once it has completed.
  cudaEvent_t mark(cudaEvent_t event);
  bool passed(cudaEvent_t event, const std::string& doing);

 private:
  [[noreturn]] void fail(const std::string& doing, const std::string& why);
  void look(const std::string& doing, Deadline deadline);
  void settle(const char* what, const std::string& doing, Deadline deadline);

  std::recursive_mutex gate_;
  std::shared_ptr<cluster::Failure> failure_;
  std::function<void*()> compute_;
  int device_;
  int rank_;
  int size_;
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t before_ = nullptr;
  cudaEvent_t after_ = nullptr;
};

}  // namespace yoke::comm::nccl
