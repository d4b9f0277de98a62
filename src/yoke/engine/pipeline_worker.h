// A worker that is one stage of a pipeline.
#pragma once

#include <vector>

#include "yoke/compute/recompute_policy.h"
#include "yoke/engine/worker.h"

namespace yoke::engine {

// Cuts the model into stages and keeps this rank's. Before the optimizer is made, which gets
// worker.stage->versions.newest(). Throws ConfigError where the model cannot be cut that way.
void make_stage(Worker& worker, const WorkerOptions& options);

// Collective. `segments`: which blocks of the whole model are computed again.
void make_pipeline(Worker& worker, const WorkerOptions& options, std::vector<compute::Segment> segments);

// Whether this rank looks at samples: the first stage takes their inputs, the last their targets, and whoever
// has the whole model both.
bool needs_samples(const Worker& worker);

// All parameters and buffers by name: of the module, or gathered from the stages (on rank 0; nothing on the
// others; collective).
std::vector<optim::NamedTensor> whole_model(const Worker& worker);

}  // namespace yoke::engine
