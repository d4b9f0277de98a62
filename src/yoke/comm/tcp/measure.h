// Measures latency and bandwidth of the group's links: rank 0 measures against rank 1 and sends the result to
// all.
#pragma once

#include "yoke/comm/tcp/links.h"

namespace yoke::comm::tcp {

// Collective; about ten round trips. `operation` is the one about to run: its fingerprint and `sequence` are
// sent along, so that mismatches are detected. Rounded to powers of eight, so that noise does not change the
// chosen algorithm.
plan::LinkCost measure_cost(Links& links, const Operation& operation, uint64_t sequence, Deadline deadline);

// The nearest power of eight.
double coarse(double value);

}  // namespace yoke::comm::tcp
