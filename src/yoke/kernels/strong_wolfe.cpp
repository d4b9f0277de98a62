#include "yoke/kernels/strong_wolfe.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace yoke::kernels {
namespace {

using Vector = LbfgsVector;

constexpr double kDecrease = 1e-4;  // c1: of the decrease that the slope promises
constexpr double kCurvature = 0.9;  // c2: of the slope at the start
constexpr double kLeastInterval = 1e-9;
constexpr int64_t kMostTrials = 25;

// A step length that was tried, and where its gradient is.
struct Trial {
  double t = 0;
  double value = 0;
  double slope = 0;
  int64_t gradient = Vector::kPrevious;
  CubicPoint point() const { return {t, value, slope}; }
};

class Search {
 public:
  Search(LbfgsVectors& vectors, int64_t history, const LineSearchStart& start)
      : vectors_(vectors), history_(history), first_t_(start.t), start_{0, start.value, start.slope} {}

  LineSearchResult run() {
    if (!bracket()) zoom();
    const Trial& best = low();
    if (best.t != at_) vectors_.scale(Vector::kGradient, 1, best.gradient);
    move_to(best.t);
    return {best.t, best.value, evaluations_};
  }

 private:
  bool decreases_enough(const Trial& trial) const {
    return trial.value <= start_.value + kDecrease * trial.t * start_.slope;
  }
  bool is_flat_enough(const Trial& trial) const {
    return std::abs(trial.slope) <= -kCurvature * start_.slope;
  }

  void move_to(double t) {
    if (t != at_) vectors_.add(Vector::kParameters, t - at_, Vector::kDirection);
    at_ = t;
  }

  // Keeps the gradient of `other` beside that of the new trial.
  Trial tried(double t, const Trial& other) {
    move_to(t);
    Trial trial{t, vectors_.evaluate(), 0, 0};
    ++evaluations_;
    trial.slope = vectors_.dot(Vector::kGradient, Vector::kDirection);
    trial.gradient = other.gradient == Vector::trial(history_, 0) ? Vector::trial(history_, 1)
                                                                  : Vector::trial(history_, 0);
    return trial;
  }
  void keep(const Trial& trial) { vectors_.scale(trial.gradient, 1, Vector::kGradient); }

  // Step lengths grow until an interval holds an acceptable one. True: the last one tried is acceptable.
  bool bracket() {
    Trial before = start_;
    Trial now = tried(first_t_, before);
    for (; trials_ < kMostTrials; ++trials_) {
      keep(now);
      if (!decreases_enough(now) || (trials_ > 1 && now.value >= before.value)) return between(before, now);
      if (is_flat_enough(now)) {
        ends_[0] = ends_[1] = now;
        return true;
      }
      if (now.slope >= 0) return between(before, now);
      const double low = now.t + 0.01 * (now.t - before.t), high = now.t * 10;
      const double next = cubic_minimum(before.point(), now.point(), low, high);
      before = std::exchange(now, tried(next, now));
    }
    keep(now);
    return between(start_, now);
  }

  bool between(const Trial& a, const Trial& b) {
    ends_[0] = a;
    ends_[1] = b;
    sort_ends();
    return false;
  }
  void sort_ends() { low_ = ends_[0].value <= ends_[1].value ? 0 : 1; }
  Trial& low() { return ends_[low_]; }
  Trial& high() { return ends_[1 - low_]; }

  // Shrinks the interval until its better end is acceptable.
  void zoom() {
    const double longest = vectors_.max_abs(Vector::kDirection);
    for (bool done = false; !done && trials_ < kMostTrials; ++trials_) {
      if (std::abs(ends_[1].t - ends_[0].t) * longest < kLeastInterval) return;
      const double t = inside();
      done = replace_end(t);
    }
  }

  // The new trial replaces an end, whose gradient's place it may take.
  bool replace_end(double t) {
    Trial now = tried(t, low());
    const bool worse = !decreases_enough(now) || now.value >= low().value;
    if (worse) {
      keep(now);
      high() = now;
      sort_ends();
      return false;
    }
    const bool done = is_flat_enough(now);
    if (!done && now.slope * (high().t - low().t) >= 0) {
      high() = low();
    } else {
      now.gradient = free_beside(high());
    }
    keep(now);
    low() = now;
    return done;
  }
  int64_t free_beside(const Trial& other) const {
    const int64_t first = Vector::trial(history_, 0);
    return other.gradient == first ? Vector::trial(history_, 1) : first;
  }

  // Where the cubic has its minimum, but not repeatedly near an end.
  double inside() {
    const double least = std::min(ends_[0].t, ends_[1].t), most = std::max(ends_[0].t, ends_[1].t);
    double t = cubic_minimum(ends_[0].point(), ends_[1].point(), least, most);
    const double margin = 0.1 * (most - least);
    if (std::min(most - t, t - least) >= margin) {
      near_end_ = false;
    } else if (near_end_ || t >= most || t <= least) {
      t = std::abs(t - most) < std::abs(t - least) ? most - margin : least + margin;
      near_end_ = false;
    } else {
      near_end_ = true;
    }
    return t;
  }

  LbfgsVectors& vectors_;
  const int64_t history_;
  const double first_t_;
  const Trial start_;
  Trial ends_[2];
  int low_ = 0;
  double at_ = 0;  // where the parameters are
  int64_t trials_ = 0, evaluations_ = 0;
  bool near_end_ = false;
};

}  // namespace

double cubic_minimum(const CubicPoint& a, const CubicPoint& b, double low, double high) {
  const CubicPoint& left = a.t <= b.t ? a : b;
  const CubicPoint& right = a.t <= b.t ? b : a;
  const double d1 = left.slope + right.slope - 3 * (left.value - right.value) / (left.t - right.t);
  const double square = d1 * d1 - left.slope * right.slope;
  if (!(square >= 0)) return (low + high) / 2;
  const double d2 = std::sqrt(square);
  const double t =
      right.t - (right.t - left.t) * ((right.slope + d2 - d1) / (right.slope - left.slope + 2 * d2));
  return std::min(std::max(t, low), high);
}

LineSearchResult strong_wolfe(LbfgsVectors& vectors, int64_t history, const LineSearchStart& start) {
  return Search(vectors, history, start).run();
}

}  // namespace yoke::kernels
