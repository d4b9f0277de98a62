// Hands out the portions of a batch: to whoever is free, and near the end again, so that no slow worker holds
// up the others. The first result of a portion counts. Plain data with the time as an argument: the same code
// runs on a virtual clock.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace yoke::ps::sandblaster {

class Portions {
 public:
  enum class Backups { kNone, kWhenLate };
  explicit Portions(int64_t count = 0, Backups backups = Backups::kWhenLate);

  // The next portion for a worker without one. When all are handed out: a copy of one that takes longer than
  // half of the finished ones did, preferring those with the fewest copies. Empty: nothing now.
  std::optional<int64_t> next(int worker, double now);
  // When next() may have a copy for this worker that is too early now; empty: not before a worker finishes.
  std::optional<double> copy_due(int worker) const;

  // True: the first result of this portion. Also of a worker that was not given it.
  bool finished(int worker, int64_t portion, double now);
  // What this worker alone was computing is handed out again.
  void lost(int worker);

  int64_t count() const { return static_cast<int64_t>(all_.size()); }
  bool done() const { return left_ == 0; }
  int64_t copies() const { return copies_; }  // handed out so far

 private:
  struct Copy {
    int worker;
    double since;
  };
  struct Portion {
    bool done = false;
    std::vector<Copy> copies{};  // being computed
  };
  // When a copy is due; empty: this worker has it, or nothing is known of how long portions take.
  std::optional<double> due(const Portion& portion, int worker) const;
  double typical_seconds() const;

  std::vector<Portion> all_;
  Backups backups_;
  int64_t left_ = 0;
  int64_t unopened_ = 0;         // from here on nothing was handed out
  std::vector<double> seconds_;  // of finished portions, sorted
  int64_t copies_ = 0;
};

}  // namespace yoke::ps::sandblaster
