// [parallel]: how work is distributed over ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "yoke/config/fields.h"

namespace yoke::parallel {

std::vector<std::string> sync_words();  // registry.h

struct ParallelOptions {
  int64_t data = 0;  // replicas; 0: what the other axes leave
  int64_t pipeline = 1;
  int64_t tensor = 1;
  bool sequence = false;
  std::string tensor_plan;
  std::string plan;       // of the pipeline: empty, "auto" or a file of `yoke plan --json`
  std::string partition;  // of a graph: empty, "auto" or a file of `yoke partition --json`
  std::string sync = "allreduce";
  int64_t zero = 0;
  std::string offload = "none";
  std::string split = "equal";
  std::string backend = "auto";
};

inline void describe(config::Fields& f, ParallelOptions& o) {
  f.integer("data", o.data, "number of replicas; 0: as many as the other axes leave room for", 0, 65536);
  f.integer("pipeline", o.pipeline, "number of pipeline stages", 1, 1024);
  f.integer("tensor", o.tensor, "tensor parallel: ranks that compute each layer together", 1, 1024);
  f.boolean("sequence", o.sequence, "tensor parallel: also shard activations along the sequence");
  f.text("tensor_plan", o.tensor_plan, "TOML file of layer patterns and their cuts; empty: the model's own");
  f.text("plan", o.plan,
         "stages and replicas of the pipeline: auto measures and plans, or a file of yoke plan --json");
  f.text("partition", o.partition,
         "parts of a model that is not sequential (a graph): auto measures and partitions, or a file of "
         "yoke partition --json; parallel.pipeline is the number of parts");
  f.choice(
      "sync", o.sync, sync_words(),
      "how replicas are synchronized: allreduce, threads (GPUs) of one process, ps (parameter servers), "
      "average (parameters, periodically), hybrid (sums on workers and spare machines), or auto (hybrid or "
      "allreduce, by a trial)");
  f.integer("zero", o.zero,
            "what replicas shard: 1 optimizer state, 2 also gradients, 3 also parameters; 0 nothing", 0, 3);
  f.choice("offload", o.offload, {"none", "optimizer", "all"},
           "with parallel.zero = 3 on GPUs: what is kept in host memory");
  f.text("split", o.split, "how the batch is divided: equal, speed (measured), or shares such as 8:4");
  f.choice("backend", o.backend, {"auto", "shm", "tcp", "hierarchical", "mpi", "nccl"},
           "communication backend; auto: shm on one machine, tcp across machines, nccl on GPUs");
}

}  // namespace yoke::parallel
