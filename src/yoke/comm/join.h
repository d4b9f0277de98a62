// The way into a distributed program: `yoke::World world = yoke::join();`
//
// Start the program with `yoke run --nproc 4 ./program`, torchrun --no-python, mpirun, srun or under
// Kubernetes: who it is comes from the environment (`yoke env` explains). Started alone it is a world of one.
#pragma once

#include <memory>
#include <string>

#include "yoke/cluster/world.h"
#include "yoke/comm/communicator.h"
#include "yoke/comm/connect.h"

namespace yoke {

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
  std::unique_ptr<comm::Communicator> comm_;  // goes first: it talks through the job
};

// Meets the other ranks. Collective. Throws ConfigError (environment), Error with kRendezvous (ranks that do
// not come, a wrong key), CommError. Messages of this process are prefixed with its rank from here on.
World join(const cluster::JoinOptions& options = {}, const comm::ConnectOptions& connect = {});

}  // namespace yoke
