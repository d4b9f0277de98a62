// One direction of a network between workers and servers on a virtual clock: transfers of any number of
// workers at once.
//
// Every machine's link has the same bandwidth, and a transfer is spread over all servers. So each of n
// transfers has the bandwidth of its worker, or the n-th part of all servers', whichever is less.
#pragma once

#include <algorithm>
#include <limits>
#include <set>
#include <utility>
#include <vector>

namespace yoke::sim {

class SharedLink {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  // `bandwidth`: bytes per second of one machine.
  SharedLink(double bandwidth, int servers, int workers)
      : bandwidth_(bandwidth), all_(bandwidth * servers), ends_(static_cast<size_t>(workers), -1) {}

  // Requires that the worker has no transfer here.
  void begin(int worker, double now, double bytes) {
    advance(now);
    ends_[static_cast<size_t>(worker)] = moved_ + bytes;
    transfers_.emplace(moved_ + bytes, worker);
  }
  // Ends the worker's transfer, if it has one.
  void end(int worker, double now) {
    double& own = ends_[static_cast<size_t>(worker)];
    if (own < 0) return;
    advance(now);
    transfers_.erase({own, worker});
    own = -1;
  }
  // The transfer that is complete next.
  int first() const { return transfers_.begin()->second; }
  double first_time() const {
    return transfers_.empty() ? kNever : now_ + std::max(0.0, transfers_.begin()->first - moved_) / rate();
  }

 private:
  double rate() const { return std::min(bandwidth_, all_ / static_cast<double>(transfers_.size())); }
  void advance(double now) {
    if (!transfers_.empty()) moved_ += (now - now_) * rate();
    now_ = now;
  }

  double bandwidth_, all_;
  double now_ = 0;
  double moved_ = 0;                            // bytes of a transfer that has been here all the time
  std::set<std::pair<double, int>> transfers_;  // by what `moved_` is at their end
  std::vector<double> ends_;                    // [worker]: likewise; -1: none
};

}  // namespace yoke::sim
