// Which machine computes which nodes of a network that is no chain: model parallelism of arbitrary graphs.
//
// Every node has a weight (its work), every output goes to some readers. A partition gives each node a part
// such that no part weighs more than the balance allows, and the bytes that cross machines are few. An output
// crosses once for every other part that reads it, however many readers are there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "yoke/plan/pipeline/profile.h"

namespace yoke::plan {

// One output and everybody who has to do with it.
struct Net {
  double bytes = 0;
  std::vector<int> nodes;  // who makes it, then who reads it; each once
  bool operator==(const Net&) const = default;
};

struct PartitionGraph {
  std::vector<double> weights;  // of each node
  std::vector<Net> nets;        // of two nodes or more
  int nodes() const { return static_cast<int>(weights.size()); }
};

// What a part must not have too much of.
enum class PartitionWeight : uint8_t { kSeconds, kParameters, kNodes };
// "seconds", "parameters", "nodes"; throws ConfigError listing them.
PartitionWeight parse_partition_weight(const std::string& name);

PartitionGraph graph_of(const Profile& profile, PartitionWeight weight = PartitionWeight::kSeconds);

struct PartitionOptions {
  int parts = 2;
  double balance = 1.1;  // no part weighs more than this times the average
  uint64_t seed = 1;     // the same seed, the same answer
  int restarts = 0;      // of the search in larger graphs; 0: 12 to 200, as their size allows
  // Steps of the exact search before it gives up and the best found so far stands.
  int64_t exact_steps = 1'000'000;
};

struct Partition {
  std::vector<int> part_of;     // of each node; parts are numbered by their first nodes
  std::vector<double> weights;  // of each part
  double cut_bytes = 0;
  bool optimal = false;  // proven: nothing within the balance crosses less
};

// Exact for small graphs (about 20 nodes, more where the cut is small), otherwise multilevel with
// Fiduccia-Mattheyses passes, improved by the exact search as far as its steps reach. Throws ConfigError for
// options out of range and where nothing keeps the balance, saying which balance can be kept.
Partition make_partition(const PartitionGraph& graph, const PartitionOptions& options);

// Bytes that cross under any assignment.
double cut_bytes(const PartitionGraph& graph, const std::vector<int>& part_of);

}  // namespace yoke::plan
