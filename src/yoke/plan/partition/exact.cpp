#include <algorithm>
#include <limits>

#include "yoke/plan/at.h"
#include "yoke/plan/partition/state.h"

namespace yoke::plan {
namespace {

// Places nodes one after the other; of a net only the parts of the nodes placed so far are known.
class Search {
 public:
  Search(const PartitionProblem& problem, const std::vector<int>& start, int64_t steps)
      : problem_(problem),
        steps_(steps),
        part_of_(problem.graph.weights.size(), -1),
        weights_(at(problem.parts)),
        counts_(problem.graph.nets.size(), std::vector<int>(at(problem.parts))),
        open_(problem.graph.nets.size()) {
    for (size_t net = 0; net < open_.size(); ++net)
      open_[net] = static_cast<int>(problem.graph.nets[net].nodes.size());
    make_order();
    if (start.empty()) return;
    best_ = start;
    best_cut_ = cut_bytes(problem.graph, start);
  }

  ExactResult run() {
    place(0, 0, 0);
    return {best_, steps_ > 0};
  }

 private:
  // Next is always the node that shares most with those placed: bad choices show early.
  void make_order() {
    const int count = problem_.graph.nodes();
    std::vector<double> pull(at(count));
    std::vector<bool> taken(at(count));
    for (int node = 0; node < count; ++node)
      for (int net : problem_.nets_of[at(node)]) pull[at(node)] += problem_.graph.nets[at(net)].bytes * 1e-6;
    for (int i = 0; i < count; ++i) {
      int next = -1;
      for (int node = 0; node < count; ++node)
        if (!taken[at(node)] && (next < 0 || pull[at(node)] > pull[at(next)])) next = node;
      taken[at(next)] = true;
      order_.push_back(next);
      for (int net : problem_.nets_of[at(next)])
        for (int other : problem_.graph.nets[at(net)].nodes)
          pull[at(other)] += problem_.graph.nets[at(net)].bytes;
    }
    left_.assign(at(count) + 1, 0.0);
    for (int i = count - 1; i >= 0; --i)
      left_[at(i)] = left_[at(i) + 1] + problem_.graph.weights[at(order_[at(i)])];
  }

  bool present(int net, int part) const { return counts_[at(net)][at(part)] > 0; }
  bool touched(int net) const {
    return open_[at(net)] < static_cast<int>(problem_.graph.nets[at(net)].nodes.size());
  }

  // Additional bytes that cross with `node` in `part`.
  double cost(int node, int part) const {
    double bytes = 0;
    for (int net : problem_.nets_of[at(node)])
      if (touched(net) && !present(net, part)) bytes += problem_.graph.nets[at(net)].bytes;
    return bytes;
  }

  // Lower bound for what the remaining nodes must add. Several nodes of a net may go to the same new part,
  // which costs once: each carries its share.
  double bound(size_t depth) {
    double sum = 0;
    for (size_t i = depth; i < order_.size(); ++i) {
      double least = std::numeric_limits<double>::infinity();
      for (int part = 0; part < problem_.parts && least > 0; ++part) {
        if (weights_[at(part)] + problem_.graph.weights[at(order_[i])] > problem_.limit) continue;
        double bytes = 0;
        for (int net : problem_.nets_of[at(order_[i])])
          if (touched(net) && !present(net, part))
            bytes += problem_.graph.nets[at(net)].bytes / open_[at(net)];
        least = std::min(least, bytes);
      }
      sum += least;  // infinite if the node fits nowhere
    }
    return sum;
  }

  // Room left in all parts.
  double room() const {
    double sum = 0;
    for (double weight : weights_) sum += problem_.limit - weight;
    return sum;
  }

  // `used`: parts that are not empty; empty ones are equivalent, so only the next is tried.
  void place(size_t depth, int used, double cut) {
    if (steps_ <= 0) return;
    --steps_;
    if (depth == order_.size()) {
      best_ = part_of_;
      best_cut_ = cut;
      return;
    }
    if (left_[depth] > room() * (1 + 1e-9) || cut + bound(depth) >= best_cut_ * (1 - 1e-12)) return;
    const int node = order_[depth];
    const double weight = problem_.graph.weights[at(node)];
    std::vector<std::pair<double, int>> choices;
    for (int part = 0; part < std::min(used + 1, problem_.parts); ++part)
      if (weights_[at(part)] + weight <= problem_.limit) choices.emplace_back(cost(node, part), part);
    std::sort(choices.begin(), choices.end());
    for (auto [bytes, part] : choices) {
      if (cut + bytes >= best_cut_ * (1 - 1e-12)) break;
      put(node, part, 1);
      place(depth + 1, std::max(used, part + 1), cut + bytes);
      put(node, part, -1);
    }
  }

  void put(int node, int part, int sign) {
    part_of_[at(node)] = sign > 0 ? part : -1;
    weights_[at(part)] += sign * problem_.graph.weights[at(node)];
    for (int net : problem_.nets_of[at(node)]) {
      counts_[at(net)][at(part)] += sign;
      open_[at(net)] -= sign;
    }
  }

  const PartitionProblem& problem_;
  int64_t steps_;
  std::vector<int> order_;
  std::vector<double> left_;  // [depth]: weight still to be placed
  std::vector<int> part_of_;
  std::vector<double> weights_;
  std::vector<std::vector<int>> counts_;  // [net][part]: number of placed nodes
  std::vector<int> open_;                 // [net]: number of nodes not placed
  std::vector<int> best_;
  double best_cut_ = std::numeric_limits<double>::infinity();
};

}  // namespace

ExactResult exact_partition(const PartitionProblem& problem, const std::vector<int>& start, int64_t steps) {
  return Search(problem, start, steps).run();
}

}  // namespace yoke::plan
