// GPUs, over NCCL: buffers in device memory. Those in host memory take a backend for host memory, over which
// ranks also compare what they call and announce transfers.
//
// The backend is a module (libyoke_nccl.so), built where nccl.h and the CUDA runtime were found and loaded
// here at run time. It works on a stream of its own, behind what the compute stream had been given when the
// operation began, and returns when the result is there. NCCL is only polled: a deadline or the news of a
// failure aborts the group, with an error that names the operation.
//
// Apart from what communicator.h promises: there are no 16-bit integer reductions, and whether NaN goes
// through max and min is NCCL's choice.
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
  int device = -1;     // of this rank, as CUDA numbers them; -1: local_rank, modulo the number there are
  int local_rank = 0;  // on this machine
  std::shared_ptr<cluster::Failure> failure;
  double timeout = 300;           // seconds for a group to form
  std::shared_ptr<Backend> host;  // of the same ranks
  // How the ranks of a group find each other: a value that one rank leaves and others fetch, waiting for it
  // (cluster::Session). Thread-safe; used when groups form, not for data.
  std::function<void(const std::string& key, const std::string& value, Deadline)> put;
  std::function<std::string(const std::string& key, Deadline)> get;
  // The cudaStream_t that inputs are computed on. Called on the thread that carries the operation out. Empty:
  // the default stream.
  std::function<void*()> stream;
  std::string folder;  // where the module lies; empty: the usual places (modules/module.h)
};

// Collective over the job. Throws ConfigError: no module (says what brings it), no such device. Throws
// CommError when the group does not form in time.
std::unique_ptr<Backend> make_nccl_backend(const NcclSetup& setup);

// Copies between any of host and device memory and waits: for programs that know no CUDA. Requires the
// module.
void nccl_copy(void* to, const void* from, size_t bytes, const std::string& folder = "");

}  // namespace yoke::comm
