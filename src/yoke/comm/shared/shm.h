// Backend for ranks that are processes of one machine.
//
// Every rank has a heap: a sparse memfd that all ranks map. Nothing has a name in the file system, so nothing
// is left behind, however the processes end.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "yoke/base/deadline.h"
#include "yoke/cluster/failure.h"
#include "yoke/comm/backend.h"

namespace yoke::comm {

struct ShmSetup {
  int rank = 0;
  int size = 1;
  // Key-value store of the job, such as cluster::Session; get() blocks until the key exists. It carries the
  // token that authenticates the ranks, so it must be private to the job.
  std::function<void(const std::string& key, const std::string& value, Deadline deadline)> put;
  std::function<std::string(const std::string& key, Deadline deadline)> get;
  std::string key = "shm";  // unique among the groups that use the same store
  std::shared_ptr<cluster::Failure> failure;
  double timeout = 60;  // seconds for all ranks to connect
  // Address space per rank; 0: the machine's memory size, at most 128 GiB.
  size_t heap_bytes = 0;
};

// Collective. Rank 0 creates the heaps and passes them over a unix socket to processes of the same user that
// know the token. Throws CommError if ranks are missing, ConfigError unless 1 <= size <= 64.
std::unique_ptr<Backend> make_shm_backend(const ShmSetup& setup);

}  // namespace yoke::comm
