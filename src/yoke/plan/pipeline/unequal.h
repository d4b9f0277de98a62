// Plans for devices of different speed and memory.
//
// Replicas of a stage take minibatches in turn, so the stage runs at the speed of its slowest device and its
// versions must fit into the smallest memory. Which devices share a stage is part of the search.
#pragma once

#include <vector>

#include "yoke/plan/pipeline/plan.h"
#include "yoke/plan/pipeline/pricing.h"

namespace yoke::plan {

// Requires options.devices. Exact if the kinds of devices can be divided in at most 30,000 ways (nine
// different devices, two kinds of sixteen); otherwise stages take contiguous devices in one of several
// orders, and the plan is marked as not exact. Throws ConfigError: several levels, a wrong number of devices,
// speeds or memories <= 0, more than 1,024 devices, no plan.
PipelinePlan plan_unequal(const Cuts& cuts, const PlanOptions& options);

// The best plan for each number of stages from 1 to `most`, if there is one.
std::vector<PipelinePlan> unequal_by_stages(const Cuts& cuts, const PlanOptions& options, int most);

}  // namespace yoke::plan
