// What of a run can be known to fail before anything is started. Each check throws ConfigError; none needs
// LibTorch.
#pragma once

#include "cli/run_config.h"
#include "yoke/plan/pipeline/plan.h"

namespace yoke::cli {

// The weights of a rank and the inputs of a batch fit this machine's memory (on the CPU).
void check_memory(const RunConfig& config);

// The layout on that many ranks: an elastic pipeline takes what there is (parallel/elastic.h).
parallel::Choices layout_on(const RunConfig& config, int workers);

// So many workers are what parallel.data, parallel.pipeline, parallel.plan (where it is a file) and the
// model's blocks ask for.
void check_workers(const RunConfig& config, int workers);

// The same of a plan.
void check_plan(const RunConfig& config, const plan::PipelinePlan& plan, int workers);

}  // namespace yoke::cli
