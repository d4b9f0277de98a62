// Plans for devices of different speeds and memories.
//
// Replicas of a stage take minibatches in turn, so that the stage runs at the pace of its slowest device, and
// its versions must fit into the smallest memory. Which devices share a stage is part of the question.
#pragma once

#include <vector>

#include "yoke/plan/pipeline/plan.h"
#include "yoke/plan/pipeline/pricing.h"

namespace yoke::plan {

// Requires options.devices. Exact where the kinds of devices can be divided in at most 30,000 ways (nine
// devices that all differ, two kinds of sixteen); beyond, stages take devices that stand together in one of
// several orders, and the plan says that it is not exact. Throws ConfigError: several levels, not as many
// devices as the level counts, speeds or memories not above 0, more than 1,024 devices, no plan.
PipelinePlan plan_unequal(const Cuts& cuts, const PlanOptions& options);

// The best plan of each number of stages from 1 to `most`, where there is one.
std::vector<PipelinePlan> unequal_by_stages(const Cuts& cuts, const PlanOptions& options, int most);

}  // namespace yoke::plan
