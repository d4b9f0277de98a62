// Ranks that are processes of one machine.
//
// Every rank has a heap: a sparse memory file that all of them map. Nothing has a name in the file system, so
// that nothing is left behind, however the processes end.
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
  // Small strings between the ranks, such as cluster::Session's: get() waits until the key was put. The value
  // holds the token with which ranks show that they belong here: the channel must not be open to others.
  std::function<void(const std::string& key, const std::string& value, Deadline deadline)> put;
  std::function<std::string(const std::string& key, Deadline deadline)> get;
  std::string key = "shm";  // differs between the groups that are set up over the same channel
  std::shared_ptr<cluster::Failure> failure;
  double timeout = 60;  // seconds until all ranks must have come
  size_t heap_bytes =
      0;  // of address space for each rank; 0: as much as the machine has memory, at most 128 GiB
};

// Collective. Rank 0 makes the heaps and hands them out over a unix socket, only to processes of the same
// user that know the token. Throws CommError when ranks do not come, ConfigError for a size outside of 1
// to 64.
std::unique_ptr<Backend> make_shm_backend(const ShmSetup& setup);

}  // namespace yoke::comm
