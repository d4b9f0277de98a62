// A point in time after which waiting is an error. Everything in Yoke that waits takes one.
#pragma once

#include <algorithm>

#include "yoke/base/clock.h"

namespace yoke {

class Deadline {
 public:
  static Deadline after(double seconds) { return Deadline(now_seconds(), seconds); }

  double left() const { return std::max(0.0, end_ - now_seconds()); }  // seconds
  bool passed() const { return now_seconds() >= end_; }
  double elapsed() const { return now_seconds() - begin_; }
  double limit() const { return end_ - begin_; }
  // For poll() and similar: rounded up, so that a wait does not end just before the deadline.
  int left_ms() const { return static_cast<int>(std::min(left(), 1e6) * 1e3) + 1; }
  // The earlier of this deadline and `seconds` from now.
  Deadline sooner(double seconds) const {
    Deadline other = after(seconds);
    return other.end_ < end_ ? other : *this;
  }

 private:
  Deadline(double begin, double seconds) : begin_(begin), end_(begin + seconds) {}
  double begin_;
  double end_;
};

}  // namespace yoke
