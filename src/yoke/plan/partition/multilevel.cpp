#include <algorithm>
#include <map>
#include <numeric>

#include "yoke/base/random.h"
#include "yoke/plan/at.h"
#include "yoke/plan/partition/state.h"

namespace yoke::plan {
namespace {

constexpr int kSmall = 48;       // nodes: coarsening stops here
constexpr size_t kWideNet = 64;  // a net with so many readers says little about which nodes belong together

std::vector<int> shuffled(int count, Random& random) {
  std::vector<int> order(at(count));
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

double heaviest_pair(const PartitionProblem& problem) {
  return std::max(problem.limit / 4, 1.5 * problem.heaviest);
}

// Pairs nodes that share most bytes; assigns each node the number of its pair.
std::vector<int> match(const PartitionProblem& problem, Random& random) {
  const PartitionGraph& graph = problem.graph;
  const double most = heaviest_pair(problem);
  std::vector<int> pair_of(graph.weights.size(), -1);
  std::vector<double> shared(graph.weights.size());
  std::vector<int> touched;
  int pairs = 0;
  for (int node : shuffled(graph.nodes(), random)) {
    if (pair_of[at(node)] >= 0) continue;
    touched.clear();
    for (int net : problem.nets_of[at(node)]) {
      const Net& wire = graph.nets[at(net)];
      if (wire.nodes.size() > kWideNet) continue;
      for (int other : wire.nodes) {
        if (other == node || pair_of[at(other)] >= 0) continue;
        if (shared[at(other)] == 0) touched.push_back(other);
        shared[at(other)] += wire.bytes / static_cast<double>(wire.nodes.size() - 1) + 1e-9;
      }
    }
    int best = -1;
    for (int other : touched) {
      bool light = graph.weights[at(node)] + graph.weights[at(other)] <= most;
      if (light && (best < 0 || shared[at(other)] > shared[at(best)])) best = other;
    }
    for (int other : touched) shared[at(other)] = 0;
    pair_of[at(node)] = pairs;
    if (best >= 0) pair_of[at(best)] = pairs;
    ++pairs;
  }
  return pair_of;
}

// Nodes without a partner (they share nothing, or only what all share) are paired in execution order, so that
// every graph shrinks.
void pair_singles(const PartitionProblem& problem, std::vector<int>& pair_of) {
  std::vector<int> sizes(pair_of.size()), number(pair_of.size(), -1);
  for (int pair : pair_of) ++sizes[at(pair)];
  int waiting = -1;
  for (size_t node = 0; node < pair_of.size(); ++node) {
    if (sizes[at(pair_of[node])] != 1) continue;
    const double weight = problem.graph.weights[node];
    if (waiting >= 0 && problem.graph.weights[at(waiting)] + weight <= heaviest_pair(problem)) {
      pair_of[node] = pair_of[at(waiting)];
      waiting = -1;
    } else {
      waiting = static_cast<int>(node);
    }
  }
  int next = 0;  // consecutive numbers
  for (int& pair : pair_of) {
    if (number[at(pair)] < 0) number[at(pair)] = next++;
    pair = number[at(pair)];
  }
}

PartitionGraph contract(const PartitionGraph& graph, const std::vector<int>& pair_of) {
  PartitionGraph coarse;
  coarse.weights.resize(at(*std::max_element(pair_of.begin(), pair_of.end()) + 1));
  for (size_t node = 0; node < pair_of.size(); ++node)
    coarse.weights[at(pair_of[node])] += graph.weights[node];
  std::map<std::vector<int>, double> nets;  // nets with the same nodes are merged
  for (const Net& net : graph.nets) {
    std::vector<int> nodes;
    for (int node : net.nodes) nodes.push_back(pair_of[at(node)]);
    std::sort(nodes.begin(), nodes.end());
    nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
    if (nodes.size() > 1) nets[nodes] += net.bytes;
  }
  for (auto& [nodes, bytes] : nets) coarse.nets.push_back({bytes, nodes});
  return coarse;
}

// Fills parts one after the other from a random node outwards, each with the nodes it shares most with.
std::vector<int> grow(const PartitionProblem& problem, Random& random) {
  const PartitionGraph& graph = problem.graph;
  const double total = std::accumulate(graph.weights.begin(), graph.weights.end(), 0.0);
  std::vector<int> part_of(graph.weights.size(), problem.parts - 1), order = shuffled(graph.nodes(), random);
  std::vector<bool> placed(graph.weights.size());
  for (int part = 0; part + 1 < problem.parts; ++part) {
    std::vector<double> pull(graph.weights.size());
    for (double filled = 0; filled < total / problem.parts;) {
      int best = -1;
      for (int node : order)
        if (!placed[at(node)] && (best < 0 || pull[at(node)] > pull[at(best)])) best = node;
      if (best < 0) break;
      const double weight = graph.weights[at(best)];
      if (filled > 0 && filled + weight > problem.limit) break;
      placed[at(best)] = true;
      part_of[at(best)] = part;
      filled += weight;
      for (int net : problem.nets_of[at(best)]) {
        const Net& wire = graph.nets[at(net)];
        for (int other : wire.nodes) pull[at(other)] += wire.bytes / static_cast<double>(wire.nodes.size());
      }
    }
  }
  return part_of;
}

}  // namespace

std::vector<int> multilevel(const PartitionProblem& problem, uint64_t seed) {
  Random random(seed);
  if (problem.graph.nodes() > std::max(kSmall, 8 * problem.parts)) {
    std::vector<int> pair_of = match(problem, random);
    const int pairs = *std::max_element(pair_of.begin(), pair_of.end()) + 1;
    if (pairs > problem.graph.nodes() * 3 / 4) pair_singles(problem, pair_of);
    PartitionProblem coarse(contract(problem.graph, pair_of), problem.parts, problem.limit);
    if (coarse.graph.nodes() < problem.graph.nodes() * 9 / 10) {
      std::vector<int> above = multilevel(coarse, random.next()), part_of;
      for (int pair : pair_of) part_of.push_back(above[at(pair)]);
      PartitionState state(problem, std::move(part_of));
      refine(problem, state);
      return state.part_of();
    }
  }
  PartitionState state(problem, grow(problem, random));
  refine(problem, state);
  return state.part_of();
}

}  // namespace yoke::plan
