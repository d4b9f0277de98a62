// What a plan means for the simulator.
#pragma once

#include "yoke/plan/pipeline/plan.h"
#include "yoke/sim/pipeline.h"

namespace yoke::sim {

// The stages and replicas of a plan under `pipedream`, one micro-batch a minibatch.
plan::ScheduleRequest request_of(const plan::PipelinePlan& plan);

// Its times: one way over a cut is half of what the plan counts; sync overlaps as its cost model has it.
PipelineCosts costs_of(const plan::PipelinePlan& plan);

// Seconds between minibatches that its stages and cuts allow.
double bottleneck_of(const plan::PipelinePlan& plan);

// The plan's stages on other machines: devices are filled in order, and what stays within a component uses
// its level's bandwidth. Requires at least as many devices; throws ConfigError otherwise.
plan::PipelinePlan on_levels(plan::PipelinePlan plan, const std::vector<plan::Level>& levels);

}  // namespace yoke::sim
