// A distributed graph as a run measured it: who computed what, and what travelled.
#pragma once

#include <string>

#include "yoke/metrics/partition_run.h"

namespace yoke::report {

// Nodes in the colours of their parts with their times, lines between parts with the bytes that crossed.
std::string partition_svg(const metrics::PartitionRun& run);

// The section of a report: the graph, the timeline of one pass, and the totals in words.
std::string partition_section(const metrics::PartitionRun& run);

}  // namespace yoke::report
