#include "yoke/plan/partition/partition.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "yoke/base/error.h"
#include "yoke/base/random.h"
#include "yoke/plan/at.h"
#include "yoke/plan/partition/state.h"

namespace yoke::plan {
namespace {

constexpr int kMostParts = 1024;
constexpr int kExactNodes = 128;  // above this a step costs too much for what it proves

void check(const PartitionGraph& graph, const PartitionOptions& options) {
  if (options.parts < 1 || options.parts > kMostParts)
    throw ConfigError("--parts {}: expected an integer from 1 to {}.", options.parts, kMostParts);
  if (!(options.balance >= 1) || !std::isfinite(options.balance))
    throw ConfigError(
        "--balance {}: expected a number of at least 1; 1.1 allows each part 10 % above the average.",
        options.balance);
  if (graph.weights.empty()) throw ConfigError("a graph without nodes cannot be partitioned.");
}

// In execution order, each part filled to its share: the obvious first solution.
std::vector<int> in_order(const PartitionProblem& problem, double total) {
  std::vector<int> part_of;
  double done = 0;
  for (double weight : problem.graph.weights) {
    double middle = total > 0 ? (done + weight / 2) / total : 0;
    part_of.push_back(std::min(problem.parts - 1, static_cast<int>(middle * problem.parts)));
    done += weight;
  }
  return part_of;
}

// Heaviest first, each into the lightest part: well balanced and fast.
std::vector<int> heaviest_first(const PartitionProblem& problem) {
  std::vector<int> order(problem.graph.weights.size()), part_of(order.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return problem.graph.weights[at(a)] > problem.graph.weights[at(b)]; });
  std::vector<double> weights(at(problem.parts));
  for (int node : order) {
    auto lightest = std::min_element(weights.begin(), weights.end());
    part_of[at(node)] = static_cast<int>(lightest - weights.begin());
    *lightest += problem.graph.weights[at(node)];
  }
  return part_of;
}

// More restarts for graphs in which one is cheap, few if the exact search will finish anyway.
int restarts_for(int nodes) {
  return std::clamp(100'000 / nodes, 12, std::clamp(4 * nodes, 12, 200));
}

// The best of several starts: less overload first, then fewer bytes.
std::vector<int> search(const PartitionProblem& problem, const PartitionOptions& options, double total) {
  std::vector<std::vector<int>> starts = {in_order(problem, total), heaviest_first(problem)};
  std::vector<int> best;
  std::pair<double, double> best_value;
  auto consider = [&](std::vector<int> start) {
    PartitionState state(problem, std::move(start));
    refine(problem, state);
    std::pair<double, double> value(state.overload(), state.cut());
    if (!best.empty() && value >= best_value) return;
    best = state.part_of();
    best_value = value;
  };
  for (std::vector<int>& start : starts) consider(std::move(start));
  const int restarts = options.restarts > 0 ? options.restarts : restarts_for(problem.graph.nodes());
  for (int i = 0; i < restarts; ++i)
    consider(multilevel(problem, derive_seed(options.seed, 0x70617274, static_cast<uint64_t>(i))));
  return best;
}

Partition described(const PartitionProblem& problem, const std::vector<int>& part_of, bool optimal) {
  Partition out;
  out.optimal = optimal;
  out.weights.resize(at(problem.parts));
  std::vector<int> number(at(problem.parts), -1);
  int next = 0;
  for (int part : part_of) {
    if (number[at(part)] < 0) number[at(part)] = next++;
    out.part_of.push_back(number[at(part)]);
  }
  for (size_t node = 0; node < part_of.size(); ++node)
    out.weights[at(out.part_of[node])] += problem.graph.weights[node];
  out.cut_bytes = cut_bytes(problem.graph, out.part_of);
  return out;
}

}  // namespace

PartitionWeight parse_partition_weight(const std::string& name) {
  if (name == "seconds") return PartitionWeight::kSeconds;
  if (name == "parameters") return PartitionWeight::kParameters;
  if (name == "nodes") return PartitionWeight::kNodes;
  throw ConfigError("--weight {}: unknown. Accepted: seconds parameters nodes.", name);
}

PartitionGraph graph_of(const Profile& profile, PartitionWeight weight) {
  PartitionGraph graph;
  std::vector<std::vector<int>> readers(profile.layers.size());
  for (const Edge& edge : profile.edges) readers[at(edge.from)].push_back(edge.to);
  for (size_t i = 0; i < profile.layers.size(); ++i) {
    const Layer& layer = profile.layers[i];
    graph.weights.push_back(weight == PartitionWeight::kSeconds      ? layer.seconds()
                            : weight == PartitionWeight::kParameters ? layer.parameter_bytes
                                                                     : 1.0);
    if (profile.is_chain() && i + 1 < profile.layers.size()) readers[i].push_back(static_cast<int>(i) + 1);
    std::sort(readers[i].begin(), readers[i].end());
    readers[i].erase(std::unique(readers[i].begin(), readers[i].end()), readers[i].end());
    if (readers[i].empty()) continue;
    Net net{layer.activation_bytes, {static_cast<int>(i)}};
    net.nodes.insert(net.nodes.end(), readers[i].begin(), readers[i].end());
    graph.nets.push_back(std::move(net));
  }
  return graph;
}

double cut_bytes(const PartitionGraph& graph, const std::vector<int>& part_of) {
  double bytes = 0;
  std::vector<int> parts;
  for (const Net& net : graph.nets) {
    parts.clear();
    for (int node : net.nodes) parts.push_back(part_of[at(node)]);
    std::sort(parts.begin(), parts.end());
    auto count = std::unique(parts.begin(), parts.end()) - parts.begin();
    bytes += net.bytes * static_cast<double>(count - 1);
  }
  return bytes;
}

Partition make_partition(const PartitionGraph& graph, const PartitionOptions& options) {
  check(graph, options);
  const double total = std::accumulate(graph.weights.begin(), graph.weights.end(), 0.0);
  const double average = total / options.parts;
  PartitionProblem problem(graph, options.parts, options.balance * average * (1 + 1e-9));
  std::vector<int> found = search(problem, options, total);
  PartitionState state(problem, found);
  const bool balanced = state.overload() <= 0;
  ExactResult exact;
  if (problem.graph.nodes() <= kExactNodes)
    exact = exact_partition(problem, balanced ? found : std::vector<int>{}, options.exact_steps);
  if (!exact.part_of.empty()) return described(problem, exact.part_of, exact.complete);
  if (balanced) return described(problem, found, state.cut() == 0);
  double heaviest = *std::max_element(state.weights().begin(), state.weights().end());
  throw ConfigError("--balance {}: no {} parts {} this balance. Hint: use --balance {:g}, or fewer parts.",
                    options.balance, options.parts, exact.complete ? "are" : "were found",
                    std::ceil(heaviest / average * 1000) / 1000);
}

}  // namespace yoke::plan
