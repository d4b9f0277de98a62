// The losses of a run's updates, thinned out as the run grows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

namespace yoke::ps {

struct LossPoint {
  int64_t version = 0;  // of the last update in it
  double seconds = 0;   // time of that decision, since the first release
  double loss = 0;      // mean over the gradients
  int64_t gradients = 0;
};

// All points cover the same number of updates, which doubles whenever there would be too many points. Not
// thread-safe.
class LossCurve {
 public:
  // `most` points. Requires most >= 2, even.
  explicit LossCurve(size_t most = 2000) : most_(most) {}

  void add(const LossPoint& update);
  // The last point may cover fewer updates.
  std::vector<LossPoint> points() const;

  // See ps/archive.h.
  template <class Archive>
  void exchange(Archive& archive) {
    archive(stride_);
    archive(points_);
    archive(open_);
    archive(updates_);
  }

 private:
  void halve();

  size_t most_;
  int64_t stride_ = 1;  // updates per point
  std::vector<LossPoint> points_;
  LossPoint open_;       // the point being filled
  int64_t updates_ = 0;  // updates in it
};

// {"version": […], "seconds": […], "loss": […], "gradients": […]}; a loss that is not finite is null.
nlohmann::json to_json(const std::vector<LossPoint>& points);

}  // namespace yoke::ps
