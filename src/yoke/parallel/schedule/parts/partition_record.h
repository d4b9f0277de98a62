// What all ranks of a partition did in a step, as one document: `partition.json`, which the report draws.
#pragma once

#include <nlohmann/json.hpp>

#include "yoke/parallel/schedule/parts/part_runner.h"

namespace yoke::parallel {

// {parts, replicas, nodes[{name, part, forward, backward}], edges[[from, to]], crossings[{node, part, bytes,
// gradient_bytes}], cut_bytes, makespan, events[{rank, part, kind, node, start, end}]} of the last pass;
// times and bytes of nodes are those of the first replica. Collective; the same on every rank.
nlohmann::json partition_record(const GraphParts& parts, const PipelineStage& stage,
                                const PartRunner& runner);

}  // namespace yoke::parallel
