// Creates the communicator of a job: selects the backend and connects the ranks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "yoke/cluster/world.h"
#include "yoke/comm/communicator.h"

namespace yoke::comm {

struct ConnectOptions {
  // auto: shm if all ranks are on one machine, tcp if each is on its own, hierarchical otherwise. Or one of
  // shm, tcp, hierarchical, mpi, nccl; ConfigError if it is not available.
  std::string backend = "auto";
  std::string name = "world";  // of the group, for errors
  int device = -1;             // CUDA device for nccl; -1: the local rank
  // tcp chooses algorithms from link costs. true: measured before the first choice. false: fixed costs, so
  // that every run adds in the same order.
  bool measures_links = true;
  // The last `spares` ranks only sum, in parts of at most part_bytes (comm/summation/). Only with tcp.
  int spares = 0;
  int64_t part_bytes = 4 << 20;
};

// The values `backend` accepts.
const std::vector<std::string>& backend_names();

// Collective over the whole job. The world must outlive the communicator. With a single rank `backend` is
// only checked. Throws ConfigError (unknown or missing backend, shm across machines), CommError, or Error
// with kRendezvous.
std::unique_ptr<Communicator> connect(cluster::World& world, const ConnectOptions& options = {});

}  // namespace yoke::comm
