#include "yoke/ps/loss_curve.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace yoke::ps {
namespace {

// Merges two points, weighted by their gradients.
LossPoint one_of_both(const LossPoint& first, const LossPoint& second) {
  int64_t gradients = first.gradients + second.gradients;
  auto weight = static_cast<double>(std::max<int64_t>(1, gradients));
  double loss = first.loss * (static_cast<double>(first.gradients) / weight) +
                second.loss * (static_cast<double>(second.gradients) / weight);
  return {second.version, second.seconds, loss, gradients};
}

}  // namespace

void LossCurve::add(const LossPoint& update) {
  open_ = updates_ == 0 ? update : one_of_both(open_, update);
  if (++updates_ < stride_) return;
  points_.push_back(open_);
  updates_ = 0;
  if (points_.size() >= most_) halve();
}

void LossCurve::halve() {
  for (size_t i = 0; i < points_.size() / 2; ++i)
    points_[i] = one_of_both(points_[2 * i], points_[2 * i + 1]);
  points_.resize(points_.size() / 2);
  stride_ *= 2;
}

std::vector<LossPoint> LossCurve::points() const {
  std::vector<LossPoint> all = points_;
  if (updates_ > 0) all.push_back(open_);
  return all;
}

nlohmann::json to_json(const std::vector<LossPoint>& points) {
  nlohmann::json versions = nlohmann::json::array(), seconds = versions, losses = versions,
                 gradients = versions;
  for (const LossPoint& point : points) {
    versions.push_back(point.version);
    seconds.push_back(point.seconds);
    losses.push_back(point.loss);
    gradients.push_back(point.gradients);
  }
  return {{"version", versions}, {"seconds", seconds}, {"loss", losses}, {"gradients", gradients}};
}

}  // namespace yoke::ps
