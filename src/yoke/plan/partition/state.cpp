#include "yoke/plan/partition/state.h"
#include "yoke/plan/at.h"

#include <algorithm>

namespace yoke::plan {
PartitionProblem::PartitionProblem(PartitionGraph what, int part_count, double most)
    : graph(std::move(what)), nets_of(graph.weights.size()), parts(part_count), limit(most) {
  for (size_t net = 0; net < graph.nets.size(); ++net)
    for (int node : graph.nets[net].nodes) nets_of[at(node)].push_back(static_cast<int>(net));
  for (double weight : graph.weights) heaviest = std::max(heaviest, weight);
}

PartitionState::PartitionState(const PartitionProblem& problem, std::vector<int> part_of)
    : problem_(problem),
      part_of_(std::move(part_of)),
      weights_(at(problem.parts)),
      counts_(problem.graph.nets.size() * at(problem.parts)) {
  for (size_t node = 0; node < part_of_.size(); ++node)
    weights_[at(part_of_[node])] += problem.graph.weights[node];
  for (size_t net = 0; net < problem.graph.nets.size(); ++net) {
    int parts = 0;
    for (int node : problem.graph.nets[net].nodes)
      parts += count_of(static_cast<int>(net), part(node))++ == 0 ? 1 : 0;
    cut_ += problem.graph.nets[net].bytes * (parts - 1);
  }
}

double PartitionState::overload() const {
  double sum = 0;
  for (double weight : weights_) sum += std::max(0.0, weight - problem_.limit);
  return sum;
}

void PartitionState::gains(int node, std::vector<double>& out) const {
  out.assign(at(problem_.parts), 0.0);
  const int from = part(node);
  for (int net : problem_.nets_of[at(node)]) {
    const double bytes = problem_.graph.nets[at(net)].bytes;
    const bool alone = count(net, from) == 1;
    for (int to = 0; to < problem_.parts; ++to) {
      if (to == from) continue;
      out[at(to)] += (alone ? bytes : 0) - (count(net, to) == 0 ? bytes : 0);
    }
  }
}

void PartitionState::move(int node, int to) {
  const int from = part(node);
  if (from == to) return;
  for (int net : problem_.nets_of[at(node)]) {
    const double bytes = problem_.graph.nets[at(net)].bytes;
    if (--count_of(net, from) == 0) cut_ -= bytes;
    if (count_of(net, to)++ == 0) cut_ += bytes;
  }
  weights_[at(from)] -= problem_.graph.weights[at(node)];
  weights_[at(to)] += problem_.graph.weights[at(node)];
  part_of_[at(node)] = to;
}

}  // namespace yoke::plan
