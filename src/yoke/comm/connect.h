// From a job to a communicator: picks the backend and builds it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "yoke/cluster/world.h"
#include "yoke/comm/communicator.h"

namespace yoke::comm {

struct ConnectOptions {
  // auto: shm when all ranks are on one machine, tcp when each is on its own, hierarchical otherwise. Or by
  // name: shm, tcp, hierarchical, mpi, nccl. A backend that was asked for and is not there is an error.
  std::string backend = "auto";
  std::string name = "world";
  int device = -1;  // for nccl; -1: the local rank
  // tcp chooses algorithms by what links cost. Not measured: by fixed figures, so that every run adds in the
  // same order.
  bool measures_links = true;
};

// The names `backend` accepts.
const std::vector<std::string>& backend_names();

// Collective over the whole job; the world must outlive the communicator. A world of one needs no peers.
// Throws ConfigError (unknown or missing backend, shm across machines), CommError, or Error with kRendezvous.
std::unique_ptr<Communicator> connect(cluster::World& world, const ConnectOptions& options = {});

}  // namespace yoke::comm
