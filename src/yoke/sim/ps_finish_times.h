// Event queue of the simulator if every worker has at most one event pending: who finishes next.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

namespace yoke::sim {

// A tournament tree: each inner node holds the worker of its two children that finishes first, on a tie the
// one with the lower number. O(log workers) to change a time, O(1) to query.
class FinishTimes {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  explicit FinishTimes(int workers) {
    while (leaves_ < static_cast<size_t>(workers)) leaves_ *= 2;
    times_.assign(leaves_, kNever);
    winners_.assign(2 * leaves_, 0);
    for (size_t i = 0; i < leaves_; ++i) winners_[leaves_ + i] = static_cast<int>(i);
    for (size_t node = leaves_ - 1; node > 0; --node) winners_[node] = winners_[2 * node];
  }

  void set(int worker, double time) {
    auto leaf = static_cast<size_t>(worker);
    times_[leaf] = time;
    for (size_t node = (leaves_ + leaf) / 2; node > 0; node /= 2) {
      int left = winners_[2 * node], right = winners_[2 * node + 1];
      winners_[node] = times_[static_cast<size_t>(right)] < times_[static_cast<size_t>(left)] ? right : left;
    }
  }
  int first() const { return winners_[1]; }
  double time(int worker) const { return times_[static_cast<size_t>(worker)]; }

 private:
  size_t leaves_ = 2;  // a power of two: the workers, then entries that never finish
  std::vector<double> times_;
  std::vector<int> winners_;  // [1] is the root, [leaves_ + worker] the leaves
};

}  // namespace yoke::sim
