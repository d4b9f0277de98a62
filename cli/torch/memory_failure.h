// Memory in a run: what happens when it runs out, and whether a budget was kept.
#pragma once

#include <functional>
#include <string>

#include "cli/run_config.h"
#include "yoke/cluster/world.h"
#include "yoke/engine/out_of_memory.h"
#include "yoke/engine/worker.h"

namespace yoke::cli {

// For Engine::attach_memory_report(). Both must outlive it.
std::function<engine::OutOfMemory(const std::exception&, const std::string&)> memory_report(
    engine::Worker& worker, const engine::WorkerOptions& options);

// Runs `work`. Where it ends for lack of memory or by an exception that is no Error, the other ranks are
// told, and end with that reason.
int telling_others(cluster::World& job, const std::function<int()>& work);

// data.batch_size, or less where a recomputation budget asks for it.
int64_t evaluation_batch(const RunConfig& config, const engine::Worker& worker);

// Warns where the run's peak memory is above train.recompute = budget:<bytes> by more than 5 %.
void check_budget_was_kept(const RunConfig& config, int64_t peak_bytes);

}  // namespace yoke::cli
