// Backend over NCCL for buffers in device memory. Buffers in host memory go through a second backend, over
// which the ranks also compare descriptors and announce transfers.
//
// The backend is a module (libyoke_nccl.so), built if nccl.h and the CUDA runtime are found, and loaded at
// run time. Operations run on a stream of their own, after the work that was on the compute stream when they
// began, and return once the result is complete. NCCL is polled: a deadline or a failure of the job aborts
// the group, with an error that names the operation.
//
// Differences from communicator.h: no reductions of 16-bit integers; whether NaN propagates through max and
// min is up to NCCL.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "yoke/cluster/failure.h"
#include "yoke/comm/backend.h"

namespace yoke::comm {

struct NcclSetup {
  int rank = 0;
  int size = 1;
  int device = -1;     // CUDA device index; -1: local_rank modulo the number of devices
  int local_rank = 0;  // on this machine
  std::shared_ptr<cluster::Failure> failure;
  double timeout = 300;           // seconds to form a group
  std::shared_ptr<Backend> host;  // over the same ranks
  // Key-value store of the job (cluster::Session); get() blocks until the key exists. Thread-safe. Used to
  // form groups, not for data.
  std::function<void(const std::string& key, const std::string& value, Deadline)> put;
  std::function<std::string(const std::string& key, Deadline)> get;
  // Returns the cudaStream_t on which inputs are computed. Called on the thread that runs the operation.
  // Empty: the default stream.
  std::function<void*()> stream;
  std::string folder;  // folder of the module; empty: the default ones (modules/module.h)
};

// Collective over the job. Throws ConfigError: no module (says how to get it) or no such device. Throws
// CommError if the group does not form in time.
std::unique_ptr<Backend> make_nccl_backend(const NcclSetup& setup);

// Blocking copy between any host and device memory, for programs that do not link CUDA. Requires the module.
void nccl_copy(void* to, const void* from, size_t bytes, const std::string& folder = "");

}  // namespace yoke::comm
