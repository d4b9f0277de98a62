// [parallel]: how the work is spread over ranks.
#pragma once

#include <cstdint>
#include <string>

#include "yoke/config/fields.h"

namespace yoke::parallel {

struct ParallelOptions {
  int64_t data = 0;  // replicas; 0: as many as there are ranks
  std::string sync = "allreduce";
  std::string backend = "auto";
};

inline void describe(config::Fields& f, ParallelOptions& o) {
  f.integer("data", o.data, "replicas of the model, each on its part of the batch; 0 is one a rank");
  f.choice("sync", o.sync, {"allreduce", "ps"},
           "how replicas are kept equal: they average gradients, or parameter servers update");
  f.choice("backend", o.backend, {"auto", "shm", "tcp", "hierarchical", "mpi", "nccl"},
           "how ranks talk: auto is shm on one machine, tcp between machines, nccl on GPUs");
}

}  // namespace yoke::parallel
