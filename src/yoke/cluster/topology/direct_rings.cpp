#include <algorithm>
#include <map>
#include <set>

#include "yoke/cluster/topology/ring_search.h"

namespace yoke::cluster {
namespace {

constexpr int kMostWorkers = 16;
constexpr int64_t kMostRingTries = 2'000'000;

using Lanes = std::vector<std::vector<int>>;  // [worker][worker]: number of unused links

struct DirectLink {
  int a, b, width;
  double bandwidth;
};

std::vector<DirectLink> direct_links(const Topology& topology, const std::vector<int>& workers) {
  std::map<std::string, int> index;
  for (size_t w = 0; w < workers.size(); ++w)
    index[topology.devices[static_cast<size_t>(workers[w])].name] = static_cast<int>(w);
  std::vector<DirectLink> links;
  for (const Link& link : topology.links) {
    auto a = index.find(link.a), b = index.find(link.b);
    if (a != index.end() && b != index.end())
      links.push_back({a->second, b->second, link.width, link.bandwidth});
  }
  return links;
}

// Finds the largest number of rings by backtracking: one ring, then the rings that the remaining links allow.
class RingSearch {
 public:
  explicit RingSearch(Lanes lanes) : lanes_(std::move(lanes)), size_(static_cast<int>(lanes_.size())) {
    most_ = size_ == 2 ? lanes_[0][1] : 1 << 20;
    for (const auto& row : lanes_) {
      int degree = 0;
      for (int count : row) degree += count;
      if (size_ > 2) most_ = std::min(most_, degree / 2);
    }
  }

  bool cut_off() const { return tries_ > kMostRingTries; }

  std::vector<std::vector<int>> run() {
    if (size_ == 2) return std::vector<std::vector<int>>(static_cast<size_t>(most_), {0, 1});
    if (most_ > 0) next_ring();
    return best_;
  }

 private:
  int& lanes(int a, int b) { return lanes_[static_cast<size_t>(a)][static_cast<size_t>(b)]; }
  bool done() const { return static_cast<int>(best_.size()) == most_ || tries_ > kMostRingTries; }

  void next_ring() {
    if (found_.size() > best_.size()) best_ = found_;
    if (done()) return;
    if (!found_.empty()) again(found_.back());
    if (done()) return;
    std::vector<int> ring{0};
    std::vector<bool> used(static_cast<size_t>(size_), false);
    used[0] = true;
    extend(ring, used);
  }

  // Try the last ring again if parallel links allow it: it leaves most choice for the others.
  void again(const std::vector<int> ring) {
    auto all = [&](int count) {
      for (size_t i = 0; i < ring.size(); ++i) take(ring[i], ring[(i + 1) % ring.size()], count);
    };
    for (size_t i = 0; i < ring.size(); ++i) {
      if (lanes(ring[i], ring[(i + 1) % ring.size()]) == 0) return;
    }
    all(1);
    found_.push_back(ring);
    next_ring();
    found_.pop_back();
    all(-1);
  }

  void take(int a, int b, int count) {
    lanes(a, b) -= count;
    lanes(b, a) -= count;
  }

  void extend(std::vector<int>& ring, std::vector<bool>& used) {
    if (done() || ++tries_ > kMostRingTries) return;
    int at = ring.back();
    if (static_cast<int>(ring.size()) == size_) {
      // Count each ring once, not once per direction.
      if (lanes(at, 0) == 0 || ring[1] > at) return;
      take(at, 0, 1);
      found_.push_back(ring);
      next_ring();
      found_.pop_back();
      take(at, 0, -1);
      return;
    }
    for (int to : by_lanes(at)) {
      if (used[static_cast<size_t>(to)]) continue;
      take(at, to, 1);
      used[static_cast<size_t>(to)] = true;
      ring.push_back(to);
      extend(ring, used);
      ring.pop_back();
      used[static_cast<size_t>(to)] = false;
      take(at, to, -1);
      if (done()) return;
    }
  }

  // Workers with most unused links first.
  std::vector<int> by_lanes(int at) {
    std::vector<int> order;
    for (int to = 0; to < size_; ++to) {
      if (lanes(at, to) > 0) order.push_back(to);
    }
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return lanes(at, a) > lanes(at, b); });
    return order;
  }

  Lanes lanes_;
  int size_;
  int most_ = 0;
  int64_t tries_ = 0;
  std::vector<std::vector<int>> found_, best_;
};

}  // namespace

std::vector<std::vector<int>> disjoint_direct_rings(const Topology& topology, bool& exact) {
  exact = true;
  std::vector<int> workers = workers_of(topology);
  int size = static_cast<int>(workers.size());
  if (size < 2 || size > kMostWorkers) return {};
  std::vector<DirectLink> links = direct_links(topology, workers);
  std::set<double> bandwidths;
  for (const DirectLink& link : links) bandwidths.insert(link.bandwidth);
  std::vector<std::vector<int>> best;
  double most = 0;
  for (double slowest : bandwidths) {
    auto all = static_cast<size_t>(size);
    Lanes lanes(all, std::vector<int>(all, 0));
    for (const DirectLink& link : links) {
      if (link.bandwidth < slowest) continue;
      lanes[static_cast<size_t>(link.a)][static_cast<size_t>(link.b)] += link.width;
      lanes[static_cast<size_t>(link.b)][static_cast<size_t>(link.a)] += link.width;
    }
    RingSearch search(std::move(lanes));
    auto rings = search.run();
    exact = exact && !search.cut_off();
    if (static_cast<double>(rings.size()) * slowest <= most) continue;
    most = static_cast<double>(rings.size()) * slowest;
    best = std::move(rings);
  }
  return best;
}

}  // namespace yoke::cluster
