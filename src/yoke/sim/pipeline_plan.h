// Converts a plan for the simulator.
#pragma once

#include "yoke/plan/pipeline/plan.h"
#include "yoke/sim/pipeline.h"

namespace yoke::sim {

// The stages and replicas of a plan under `pipedream`, one micro-batch per minibatch.
plan::ScheduleRequest request_of(const plan::PipelinePlan& plan);

// Its times: one way over a cut is half of the plan's cost; sync overlaps as in its cost model.
PipelineCosts costs_of(const plan::PipelinePlan& plan);

// Seconds between minibatches allowed by its stages and cuts.
double bottleneck_of(const plan::PipelinePlan& plan);

// The plan's stages on other machines: devices are assigned in order, and transfers within a component use
// its level's bandwidth. Throws ConfigError if there are too few devices.
plan::PipelinePlan on_levels(plan::PipelinePlan plan, const std::vector<plan::Level>& levels);

}  // namespace yoke::sim
