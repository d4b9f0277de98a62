// Hands out batches one by one, so that each is used once, whoever comes and goes.
//
// Batches are numbered from 0 in the order of the data, over all epochs. A worker keeps its batch until its
// gradient is accepted; the batch of a worker that is gone is handed out next. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace yoke::ps {

class BatchOrder {
 public:
  explicit BatchOrder(size_t workers) : held_(workers, kNone) {}

  // The batch that this worker computes: the one that it has, else the first that was given back, else the
  // next of all.
  int64_t give(int worker);
  // The gradient of its batch counts. Returns the batch; -1: it had none.
  int64_t use(int worker);
  // The worker is gone, and its batch was not used.
  void give_back(int worker);

  struct Counts {
    int64_t used = 0;
    int64_t complete = 0;    // all before this one were used
    int64_t given_back = 0;  // by workers that were gone
    int64_t twice = 0;       // used more than once
  };
  const Counts& counts() const { return counts_; }

  bool fits(size_t workers) const { return held_.size() == workers; }  // after a state was loaded

  // See ps/archive.h.
  template <class Archive>
  void exchange(Archive& archive) {
    archive(next_);
    archive(held_);
    archive(back_);
    archive(ahead_);
    archive(counts_);
  }

 private:
  static constexpr int64_t kNone = -1;

  int64_t next_ = 0;
  std::vector<int64_t> held_;   // by worker
  std::vector<int64_t> back_;   // given back, the smallest last
  std::vector<int64_t> ahead_;  // used, after one that was not, ascending
  Counts counts_;
};

inline int64_t BatchOrder::give(int worker) {
  int64_t& batch = held_[static_cast<size_t>(worker)];
  if (batch != kNone) return batch;
  if (back_.empty()) return batch = next_++;
  batch = back_.back();
  back_.pop_back();
  return batch;
}

inline int64_t BatchOrder::use(int worker) {
  int64_t& held = held_[static_cast<size_t>(worker)];
  const int64_t batch = held;
  held = kNone;
  if (batch == kNone) return batch;
  const auto place = std::lower_bound(ahead_.begin(), ahead_.end(), batch);
  if (batch < counts_.complete || (place != ahead_.end() && *place == batch)) {
    ++counts_.twice;
    return batch;
  }
  ++counts_.used;
  ahead_.insert(place, batch);
  size_t done = 0;
  for (; done < ahead_.size() && ahead_[done] == counts_.complete; ++done) ++counts_.complete;
  ahead_.erase(ahead_.begin(), ahead_.begin() + static_cast<std::ptrdiff_t>(done));
  return batch;
}

inline void BatchOrder::give_back(int worker) {
  int64_t& held = held_[static_cast<size_t>(worker)];
  if (held == kNone) return;
  back_.insert(std::upper_bound(back_.begin(), back_.end(), held, std::greater<>()), held);
  held = kNone;
  ++counts_.given_back;
}

}  // namespace yoke::ps
