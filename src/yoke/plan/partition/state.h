// An assignment of nodes to parts under change: what the searches move about in.
#pragma once

#include <vector>

#include "yoke/plan/partition/partition.h"

namespace yoke::plan {

// The graph with the way back from nodes to nets, and what a part may weigh.
struct PartitionProblem {
  PartitionProblem(PartitionGraph what, int part_count, double most);

  PartitionGraph graph;
  std::vector<std::vector<int>> nets_of;  // [node]
  int parts;
  double limit;  // of a part's weight
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
  // Weight above the limit, of all parts together.
  double overload() const;
  // Nodes of `net` in `part`.
  int count(int net, int part) const {
    return counts_[static_cast<size_t>(net) * static_cast<size_t>(problem_.parts) +
                   static_cast<size_t>(part)];
  }

  // Bytes less that cross when `node` moves to each part; its own part has 0.
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

// Moves single nodes, also to the worse for a while, and keeps the best state on the way (Fiduccia and
// Mattheyses 1982, between any two parts), until a whole pass changes nothing. Less overload is better, then
// fewer bytes.
void refine(const PartitionProblem& problem, PartitionState& state);

// A good assignment by coarsening, splitting the small graph and refining on the way back. Deterministic.
std::vector<int> multilevel(const PartitionProblem& problem, uint64_t seed);

// What the exact search comes back with: the best it knows, and whether it has seen everything.
struct ExactResult {
  std::vector<int> part_of;  // empty: nothing keeps the limit as far as it has seen
  bool complete = false;
};
// Branch and bound. `start` (empty: none) is an assignment within the limit, to be beaten.
ExactResult exact_partition(const PartitionProblem& problem, const std::vector<int>& start, int64_t steps);

}  // namespace yoke::plan
