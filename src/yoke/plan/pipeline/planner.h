// Finds the plan with the smallest bottleneck: exact, for chains and graphs, flat and hierarchical clusters.
#pragma once

#include <string>
#include <vector>

#include "yoke/plan/pipeline/plan.h"
#include "yoke/plan/pipeline/pricing.h"

namespace yoke::plan {

// Throws ConfigError if no plan exists: not enough memory, or a straight pipeline with fewer layers than
// devices. With options.devices (unequal.h) also if there is more than one level.
PipelinePlan make_plan(const Cuts& cuts, const PlanOptions& options);

// The best plan for each number of stages of the outermost level from 1 to `most`, if there is one. With
// several levels and a memory limit only the result of make_plan() is returned.
std::vector<PipelinePlan> plans_by_stages(const Cuts& cuts, const PlanOptions& options, int most);

// Cost of `stages` of the outermost level, whose inner plans are filled in.
PipelinePlan price_plan(const Cuts& cuts, const PlanOptions& options, const std::vector<PlanNode>& stages);

}  // namespace yoke::plan
