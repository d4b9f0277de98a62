// What parallel.sync = "average" refuses before a rank starts.
#pragma once

#include <string>

#include "yoke/optim/options.h"
#include "yoke/parallel/choices.h"
#include "yoke/plan/averaging/rounds.h"

namespace yoke::parallel {

// Values of [average] against each other and against the rest. Nothing where parallel.sync is another one.
// Throws ConfigError.
void check_average(const Choices& choices, const std::string& precision);

// Whether that many replicas can do it: graphs need certain numbers. Throws ConfigError naming the nearest.
void check_average_replicas(const Choices& choices, int64_t replicas);

// Why a run with these is not that of one device, step by step; empty: it is (to rounding).
std::string not_one_device(const Choices& choices, const optim::OptimizerOptions& optimizer,
                           int64_t replicas);

// Its rounds.
plan::RoundPlan rounds_of(const AverageOptions& average);

}  // namespace yoke::parallel
