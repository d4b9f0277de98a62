// Memory of a run: out-of-memory reports, and whether a budget was kept.
#pragma once

#include <functional>
#include <string>

#include "cli/run_config.h"
#include "yoke/cluster/world.h"
#include "yoke/engine/out_of_memory.h"
#include "yoke/engine/worker.h"

namespace yoke::cli {

// For Engine::attach_memory_report(). Both arguments must outlive it.
std::function<engine::OutOfMemory(const std::exception&, const std::string&)> memory_report(
    engine::Worker& worker, const engine::WorkerOptions& options);

// Runs `work`. If it runs out of memory or throws something other than an Error, the failure is reported to
// the other ranks, which end with that reason.
int telling_others(cluster::World& job, const std::function<int()>& work);

// data.batch_size, or less if a recomputation budget requires it.
int64_t evaluation_batch(const RunConfig& config, const engine::Worker& worker);

// Warns if the run's peak memory exceeds train.recompute = budget:<bytes> by more than 5 %.
void check_budget_was_kept(const RunConfig& config, int64_t peak_bytes);

}  // namespace yoke::cli
