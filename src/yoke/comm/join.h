// Entry point of a distributed program: `yoke::World world = yoke::join();`
//
// Start the program with `yoke run --nproc 4 ./program`, torchrun --no-python, mpirun, srun or under
// Kubernetes. Rank and size come from the environment (`yoke env` shows them). Started directly, the program
// is a world of one.
#pragma once

#include <memory>
#include <string>

#include "yoke/cluster/world.h"
#include "yoke/comm/communicator.h"
#include "yoke/comm/connect.h"

namespace yoke {

// One rank's view of the job and its communicator. Movable; not thread-safe.
class World {
 public:
  int rank() const { return job_->rank(); }
  int size() const { return job_->size(); }
  int local_rank() const { return job_->identity().local_rank; }
  comm::Communicator& comm() { return *comm_; }
  cluster::World& job() { return *job_; }

 private:
  friend World join(const cluster::JoinOptions& options, const comm::ConnectOptions& connect);
  std::unique_ptr<cluster::World> job_;
  std::unique_ptr<comm::Communicator> comm_;  // destroyed first: it uses the job
};

// Rendezvous with the other ranks. Collective. Throws ConfigError (environment), Error with kRendezvous
// (missing ranks, wrong key), CommError.
World join(const cluster::JoinOptions& options = {}, const comm::ConnectOptions& connect = {});

}  // namespace yoke
