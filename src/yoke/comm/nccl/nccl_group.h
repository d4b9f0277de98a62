// One NCCL communicator with its stream, polled. Part of the module only.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <memory>
#include <mutex>
#include <string>

#include "yoke/comm/nccl/nccl.h"

namespace yoke::comm::nccl {

// Throws CommError with CUDA's own words unless `code` is cudaSuccess.
void check(cudaError_t code, const char* call);

// Calls of NCCL go through call(), which waits until NCCL has taken them. NCCL allows one thread at a time on
// a communicator: hold gate() for calls, not for waiting.
class Group {
 public:
  // Forms the group `key` of `size` ranks: rank 0 leaves NCCL's identifier under the key, the others fetch
  // it.
  Group(const NcclSetup& setup, const std::string& key, int rank, int size, Deadline deadline);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  ncclComm_t comm() const { return comm_; }
  cudaStream_t stream() const { return stream_; }
  std::recursive_mutex& gate() { return gate_; }

  // This thread works on the group's device from now on. Throws CommError when the job or the group has
  // failed.
  void enter(const std::string& doing);
  // What is put on stream() from now on runs behind what the compute stream has been given until now.
  void follow_compute();
  // The result of a call that put work on stream(): waits until NCCL has taken it, throws when it refuses.
  void call(ncclResult_t result, const char* what, const std::string& doing, Deadline deadline);
  // Waits for all work on stream(). Aborts the group and throws at the deadline, a failure, or an error of
  // NCCL.
  void finish(const std::string& doing, size_t bytes, Deadline deadline);

  // The same without waiting: mark() behind the work, passed() when it is done.
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
