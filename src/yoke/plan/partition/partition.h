// Graph partitioning: assigns the nodes of an arbitrary network to machines (model parallelism).
//
// Every node has a weight (its work), every output is read by some nodes. A partition assigns each node to a
// part such that no part exceeds the balance limit and few bytes cross between parts. An output crosses once
// per other part that reads it, however many readers are there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "yoke/plan/pipeline/profile.h"

namespace yoke::plan {

// One output with its producer and its readers (a hyperedge).
struct Net {
  double bytes = 0;
  std::vector<int> nodes;  // producer, then readers; each once
  bool operator==(const Net&) const = default;
};

struct PartitionGraph {
  std::vector<double> weights;  // of each node
  std::vector<Net> nets;        // of two or more nodes
  int nodes() const { return static_cast<int>(weights.size()); }
};

// The quantity that is balanced.
enum class PartitionWeight : uint8_t { kSeconds, kParameters, kNodes };
// "seconds", "parameters", "nodes"; throws ConfigError listing them.
PartitionWeight parse_partition_weight(const std::string& name);

PartitionGraph graph_of(const Profile& profile, PartitionWeight weight = PartitionWeight::kSeconds);

struct PartitionOptions {
  int parts = 2;
  double balance = 1.1;  // maximum weight of a part, relative to the average
  uint64_t seed = 1;     // the same seed gives the same result
  int restarts = 0;      // of the search in larger graphs; 0: 12 to 200, by size
  // Steps of the exact search before it stops with the best result so far.
  int64_t exact_steps = 1'000'000;
};

struct Partition {
  std::vector<int> part_of;     // of each node; parts are numbered by their first nodes
  std::vector<double> weights;  // of each part
  double cut_bytes = 0;
  bool optimal = false;  // proven: no partition within the balance has a smaller cut
};

// Exact for small graphs (about 20 nodes, more if the cut is small), otherwise multilevel with
// Fiduccia-Mattheyses passes, improved by the exact search within its step limit. Throws ConfigError for
// options out of range, and if no partition satisfies the balance, with the balance that can be satisfied.
Partition make_partition(const PartitionGraph& graph, const PartitionOptions& options);

// Bytes that cross under any assignment.
double cut_bytes(const PartitionGraph& graph, const std::vector<int>& part_of);

}  // namespace yoke::plan
