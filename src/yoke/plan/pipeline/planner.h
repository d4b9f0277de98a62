// Finds the plan with the smallest bottleneck: exact, for chains and graphs, flat and hierarchical clusters.
#pragma once

#include <string>
#include <vector>

#include "yoke/plan/pipeline/plan.h"
#include "yoke/plan/pipeline/pricing.h"

namespace yoke::plan {

// Throws ConfigError where no plan exists: the memory does not suffice, or a straight pipeline has fewer
// layers than there are devices. With options.devices (unequal.h) also where there is more than one level.
PipelinePlan make_plan(const Cuts& cuts, const PlanOptions& options);

// The best plan of each number of stages of the outermost level from 1 to `most`, where there is one. Several
// levels with a memory limit are beyond it: only make_plan()'s answer comes back.
std::vector<PipelinePlan> plans_by_stages(const Cuts& cuts, const PlanOptions& options, int most);

// What `stages` of the outermost level (their inner plans filled in) would cost.
PipelinePlan price_plan(const Cuts& cuts, const PlanOptions& options, const std::vector<PlanNode>& stages);

}  // namespace yoke::plan
