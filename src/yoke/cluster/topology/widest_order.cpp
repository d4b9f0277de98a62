#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

#include "yoke/cluster/topology/ring_search.h"

namespace yoke::cluster {
namespace {

constexpr int64_t kMostOrderTries = 1'000'000;  // workers visited

// Branch and bound over orders that start with worker 0; the cost is the busiest link's seconds per byte.
class OrderSearch {
 public:
  explicit OrderSearch(const Routes& routes)
      : routes_(routes), size_(routes.workers()), load_(static_cast<size_t>(routes.directed_links()), 0) {
    used_.assign(static_cast<size_t>(size_), false);
    used_[0] = true;
    least_possible_ = lower_bound();
    sort_neighbours();
  }

  std::vector<int> run(bool& exact) {
    extend(0);
    exact = tries_ <= kMostOrderTries;
    return best_;
  }

 private:
  bool done() const {
    return best_cost_ <= least_possible_ * (1 + 1e-9) || (tries_ > kMostOrderTries && !best_.empty());
  }

  // Lower bound: every worker must send to another, and every machine to another machine.
  double lower_bound() const {
    double bound = 0;
    for (int from = 0; from < size_; ++from) {
      double widest = 0;
      for (int to = 0; to < size_; ++to) {
        if (to != from) widest = std::max(widest, routes_.bandwidth(from, to));
      }
      bound = std::max(bound, 1 / widest);
    }
    return std::max(bound, narrowest_bridge());
  }

  // A link that separates two sets of workers is used at least once in each direction.
  double narrowest_bridge() const {
    double bound = 0;
    for (int link = 0; link < routes_.directed_links(); link += 2) {
      if (separates(link)) bound = std::max(bound, 1 / routes_.capacity(link));
    }
    return bound;
  }

  bool separates(int link) const {
    // The side of worker 0: everything it reaches without the link. None of them may reach the rest.
    std::vector<int> inside, outside;
    for (int to = 0; to < size_; ++to) (to != 0 && uses(0, to, link) ? outside : inside).push_back(to);
    if (outside.empty()) return false;
    return std::all_of(inside.begin(), inside.end(), [&](int from) {
      return std::all_of(outside.begin(), outside.end(), [&](int to) { return uses(from, to, link); });
    });
  }

  bool uses(int from, int to, int link) const {
    const auto& links = routes_.links(from, to);
    return std::any_of(links.begin(), links.end(), [&](int used) { return used / 2 == link / 2; });
  }

  double add(int from, int to, int count) {
    double cost = 0;
    for (int link : routes_.links(from, to)) {
      int& load = load_[static_cast<size_t>(link)];
      load += count;
      cost = std::max(cost, load / routes_.capacity(link));
    }
    return cost;
  }

  void extend(double cost) {
    tries_ += size_ - static_cast<int>(ring_.size());
    int at = ring_.back();
    if (static_cast<int>(ring_.size()) == size_) {
      cost = std::max(cost, add(at, 0, 1));
      add(at, 0, -1);
      if (cost < best_cost_) {
        best_cost_ = cost;
        best_ = ring_;
      }
      return;
    }
    for (int to : near_[static_cast<size_t>(at)]) {
      if (used_[static_cast<size_t>(to)]) continue;
      double more = std::max(cost, add(at, to, 1));
      if (more < best_cost_) {
        used_[static_cast<size_t>(to)] = true;
        ring_.push_back(to);
        extend(more);
        ring_.pop_back();
        used_[static_cast<size_t>(to)] = false;
      }
      add(at, to, -1);
      if (done()) return;
    }
  }

  // Same machine, then wider, then nearer.
  void sort_neighbours() {
    near_.resize(static_cast<size_t>(size_));
    for (int at = 0; at < size_; ++at) {
      std::vector<int>& order = near_[static_cast<size_t>(at)];
      order.resize(static_cast<size_t>(size_));
      std::iota(order.begin(), order.end(), 0);
      auto rank = [&](int to) {
        return std::make_tuple(routes_.machine(to) != routes_.machine(at), -routes_.bandwidth(at, to),
                               routes_.latency(at, to));
      };
      std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return rank(a) < rank(b); });
    }
  }

  const Routes& routes_;
  int size_;
  std::vector<int> load_;
  std::vector<bool> used_;
  std::vector<std::vector<int>> near_;
  std::vector<int> ring_{0};
  std::vector<int> best_;
  double best_cost_ = std::numeric_limits<double>::infinity();
  double least_possible_ = 0;
  int64_t tries_ = 0;
};

}  // namespace

std::vector<int> widest_order(const Topology& topology, const Routes& routes, bool& exact) {
  // The recursion is as deep as there are workers and visits all of them at each level: too slow for large
  // clusters, where the order of the file, machine by machine, is used.
  if (routes.workers() > 512) {
    exact = false;
    std::vector<int> order(workers_of(topology).size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return routes.machine(a) < routes.machine(b); });
    return order;
  }
  return OrderSearch(routes).run(exact);
}

}  // namespace yoke::cluster
