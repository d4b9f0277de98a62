// The penalties of updates that a row has missed, taken off it at once.
//
// An update takes lr l1 off the magnitude of every weight and divides it by 1 + lr l2; what would fall below
// 0 is 0. A server touches only the rows that the update names. The others keep the mark of the update up to
// which they are current; n missed updates are, with the marks then and now,
//
//   |w| -> max(0, (|w| + then.fallen) exp(then.log_scale - now.log_scale) - now.fallen)
//
// where `fallen` is how far below 0 a weight of 0 would be by now without the max. This is exact, because a
// magnitude that has fallen to 0 stays there, whichever rates the updates had.
#pragma once

#include <cmath>
#include <cstdint>

namespace yoke::ps::sparse {

struct Penalty {
  double l1 = 0;
  double l2 = 0;
  bool any() const { return l1 > 0 || l2 > 0; }
};

struct PenaltyMark {
  double fallen = 0;
  double log_scale = 0;

  bool operator==(const PenaltyMark&) const = default;
  bool is_sane() const { return std::isfinite(fallen) && std::isfinite(log_scale) && fallen >= 0; }
  // After another update.
  PenaltyMark after(const Penalty& penalty, double lr) const {
    return {(fallen + lr * penalty.l1) / (1 + lr * penalty.l2), log_scale + std::log1p(lr * penalty.l2)};
  }
};

// Brings values that are current up to `then` up to `now`.
template <class T>
void settle(T* values, int64_t count, const PenaltyMark& then, const PenaltyMark& now) {
  if (then == now) return;
  const double keep = then.log_scale == now.log_scale ? 1 : std::exp(then.log_scale - now.log_scale);
  const double lost = now.fallen - then.fallen * keep;
  for (int64_t i = 0; i < count; ++i) {
    const double w = values[i];
    const double left = std::abs(w) * keep - lost;
    values[i] = left > 0 ? static_cast<T>(std::copysign(left, w)) : T{0};
  }
}

}  // namespace yoke::ps::sparse
