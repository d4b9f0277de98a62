// A mutable assignment of nodes to parts, used by the searches.
#pragma once

#include <vector>

#include "yoke/plan/partition/partition.h"

namespace yoke::plan {

// The graph with an index from nodes to nets, and the weight limit of a part.
struct PartitionProblem {
  PartitionProblem(PartitionGraph what, int part_count, double most);

  PartitionGraph graph;
  std::vector<std::vector<int>> nets_of;  // [node]
  int parts;
  double limit;  // maximum weight of a part
  double heaviest = 0;
};

class PartitionState {
 public:
  // Keeps a reference to `problem`. Requires a part for every node.
  PartitionState(const PartitionProblem& problem, std::vector<int> part_of);

  const std::vector<int>& part_of() const { return part_of_; }
  int part(int node) const { return part_of_[static_cast<size_t>(node)]; }
  double weight(int part) const { return weights_[static_cast<size_t>(part)]; }
  const std::vector<double>& weights() const { return weights_; }
  double cut() const { return cut_; }
  // Weight above the limit, summed over all parts.
  double overload() const;
  // Number of nodes of `net` in `part`.
  int count(int net, int part) const {
    return counts_[static_cast<size_t>(net) * static_cast<size_t>(problem_.parts) +
                   static_cast<size_t>(part)];
  }

  // Reduction of the cut in bytes if `node` moves to each part; 0 for its own part.
  void gains(int node, std::vector<double>& out) const;
  void move(int node, int to);

 private:
  int& count_of(int net, int part) {
    return counts_[static_cast<size_t>(net) * static_cast<size_t>(problem_.parts) +
                   static_cast<size_t>(part)];
  }

  const PartitionProblem& problem_;
  std::vector<int> part_of_;
  std::vector<double> weights_;
  std::vector<int> counts_;  // [net x part]
  double cut_ = 0;
};

// Moves single nodes, temporarily also for the worse, and keeps the best state (Fiduccia and Mattheyses 1982,
// between any two parts), until a whole pass changes nothing. Minimises overload first, then bytes.
void refine(const PartitionProblem& problem, PartitionState& state);

// A good assignment by coarsening, splitting the small graph and refining on the way back. Deterministic.
std::vector<int> multilevel(const PartitionProblem& problem, uint64_t seed);

// Result of the exact search: the best assignment, and whether the search was exhaustive.
struct ExactResult {
  std::vector<int> part_of;  // empty: none within the limit was found
  bool complete = false;
};
// Branch and bound. `start` (empty: none) is an assignment within the limit to improve on.
ExactResult exact_partition(const PartitionProblem& problem, const std::vector<int>& start, int64_t steps);

}  // namespace yoke::plan
