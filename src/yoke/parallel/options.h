// [parallel]: how the work is spread over ranks.
#pragma once

#include <cstdint>
#include <string>

#include "yoke/config/fields.h"

namespace yoke::parallel {

struct ParallelOptions {
  int64_t data = 0;  // replicas; 0: as many as there are ranks
  int64_t pipeline = 1;
  std::string plan;  // of the pipeline: empty, "auto" or a file of `yoke plan --json`
  std::string sync = "allreduce";
  int64_t zero = 0;
  std::string split = "equal";
  std::string backend = "auto";
};

inline void describe(config::Fields& f, ParallelOptions& o) {
  f.integer("data", o.data, "replicas of the model, each on its part of the batch; 0 is one a rank", 0,
            65536);
  f.integer("pipeline", o.pipeline, "stages of a pipeline; ranks are pipeline x data", 1, 1024);
  f.text("plan", o.plan,
         "stages and replicas of the pipeline: auto measures and plans, or a file of yoke plan --json");
  f.choice("sync", o.sync, {"allreduce", "threads", "ps"},
           "how replicas are kept equal: allreduce over ranks, threads (GPUs) of one process, or parameter "
           "servers");
  f.integer("zero", o.zero, "spread over replicas: 1 the optimizer's state, 2 gradients too; 0 nothing", 0,
            2);
  f.text("split", o.split, "the batch over replicas: equal, speed (as measured), or shares as in 8:4");
  f.choice("backend", o.backend, {"auto", "shm", "tcp", "hierarchical", "mpi", "nccl"},
           "how ranks talk: auto is shm on one machine, tcp between machines, nccl on GPUs");
}

}  // namespace yoke::parallel
