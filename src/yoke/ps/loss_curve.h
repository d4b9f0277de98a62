// The losses of a run's updates, thinned out as it grows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

namespace yoke::ps {

struct LossPoint {
  int64_t version = 0;  // of the last update it stands for
  double seconds = 0;   // when that was decided, since the first release
  double loss = 0;      // mean of the gradients
  int64_t gradients = 0;
};

// A point stands for as many updates as every other, and that number doubles whenever there would be more
// points than wanted. One thread.
class LossCurve {
 public:
  // Requires most >= 2, even.
  explicit LossCurve(size_t most = 2000) : most_(most) {}

  void add(const LossPoint& update);
  // The last one may stand for fewer updates.
  std::vector<LossPoint> points() const;

 private:
  void halve();

  size_t most_;
  int64_t stride_ = 1;  // updates of a point
  std::vector<LossPoint> points_;
  LossPoint open_;       // the one that is being filled
  int64_t updates_ = 0;  // in it
};

// {"version": […], "seconds": […], "loss": […], "gradients": […]}; a loss that is not finite is null.
nlohmann::json to_json(const std::vector<LossPoint>& points);

}  // namespace yoke::ps
