// What the ranks of a pipeline did in one step, for pictures: pipeline.json of a run.
#pragma once

#include <nlohmann/json.hpp>

#include "yoke/engine/worker.h"

namespace yoke::engine {

// Of the last step: {schedule, stages, microbatches, chunks, makespan, bubble_fraction, events[{rank, stage,
// kind, microbatch, chunk, start, end}]}, times in seconds from the first event, kinds F, B, W and update.
// The same on all ranks. Collective. Requires a pipeline.
nlohmann::json pipeline_timeline(const Worker& worker);

}  // namespace yoke::engine
