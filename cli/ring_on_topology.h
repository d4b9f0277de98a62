// An all-reduce on the ring of a machine, step by step, for report/ring_steps_svg.h.
#pragma once

#include "yoke/cluster/topology/topology.h"
#include "yoke/report/ring_steps_svg.h"

namespace yoke::cli {

// The start and every step, or, of more than fit, some of each half with its first and its last. The ring is
// the first of cluster::best_rings(), the messages take the links of cluster::Routes. Throws ConfigError for
// fewer than two devices, or devices that are not linked.
report::RingSteps ring_steps(const cluster::Topology& topology);

}  // namespace yoke::cli
