// partition.json: the nodes of a distributed graph, with the times and the bytes that a run measured.
//
// {parts, replicas, nodes[{name, part, forward, backward}], edges[[from, to]], crossings[{node, part, bytes,
// gradient_bytes}], makespan, events[{rank, part, kind, node, start, end}]}, of the last pass; seconds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "yoke/metrics/timeline.h"

namespace yoke::metrics {

struct PartitionRun {
  struct Node {
    std::string name;
    int part = 0;
    double forward = 0, backward = 0;
    bool operator==(const Node&) const = default;
  };
  // What a node gave to another part.
  struct Crossing {
    int node = 0;
    int part = 0;
    int64_t bytes = 0, gradient_bytes = 0;
    bool operator==(const Crossing&) const = default;
  };
  struct Event {
    int rank = 0;
    int node = 0;
    SpanKind kind = SpanKind::kForward;
    double start = 0, end = 0;
    bool operator==(const Event&) const = default;
  };
  int parts = 1;
  int replicas = 1;
  std::vector<Node> nodes;  // in the order of execution
  std::vector<std::pair<int, int>> edges;
  std::vector<Crossing> crossings;
  std::vector<Event> events;
  bool operator==(const PartitionRun&) const = default;

  int64_t cut_bytes() const;  // of activations
};

std::string to_json(const PartitionRun& run);

// Throws ConfigError with file, field and what is accepted: no nodes, numbers out of range, edges that lead
// backwards, times that are not finite.
PartitionRun parse_partition_run(std::string_view text, const std::string& file_name);

// A row for each rank; numbers are those of nodes.
Timeline timeline_of(const PartitionRun& run);

}  // namespace yoke::metrics
