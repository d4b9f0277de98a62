// What a message and a byte cost on this group's links: rank 0 measures with rank 1 and tells everybody.
#pragma once

#include "yoke/comm/tcp/links.h"

namespace yoke::comm::tcp {

// Collective; takes some ten round trips. `operation` is the one about to run: its fingerprint and `sequence`
// travel along. Rounded to powers of eight, so that noise does not change what is chosen from it.
plan::LinkCost measure_cost(Links& links, const Operation& operation, uint64_t sequence, Deadline deadline);

// The nearest power of eight.
double coarse(double value);

}  // namespace yoke::comm::tcp
