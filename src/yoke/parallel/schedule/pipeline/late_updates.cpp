#include "yoke/parallel/schedule/pipeline/late_updates.h"
#include "yoke/kernels/clip_factor.h"

#include <torch/utils.h>

#include <algorithm>
#include <cmath>

namespace yoke::parallel {
namespace {

constexpr int kSquaresTag = 65533;

}  // namespace

bool norm_comes_in_time(const plan::ScheduleRequest& request) {
  if (request.kind == plan::ScheduleKind::k2BW) return true;
  // Replicas of a stage process minibatches together: what one update covers then differs between stages.
  bool straight = std::all_of(request.replicas.begin(), request.replicas.end(), [](int r) { return r == 1; });
  return request.kind == plan::ScheduleKind::kPipedream && request.vertical_sync && straight;
}

LateUpdates::LateUpdates(comm::Communicator& world, double max_norm)
    : squares_(world, kSquaresTag, "norm of the gradients"), max_norm_(max_norm) {}

void LateUpdates::add(Update update, double square) {
  squares_.tell({square});
  updates_.push_back(std::move(update));
}

LateUpdates::Update LateUpdates::take() {
  torch::NoGradGuard no_grad;
  double square = 0;
  for (const Rounds::Numbers& one : squares_.hear()) square += one[0];
  Update update = std::move(updates_.front());
  updates_.pop_front();
  if (!std::isfinite(square)) {
    for (torch::Tensor& gradient : update.gradients) gradient.reset();
    ++dropped_;
    return update;
  }
  double factor = max_norm_ > 0 ? kernels::clip_factor(std::sqrt(square), max_norm_) : 1;
  for (torch::Tensor& gradient : update.gradients)
    if (factor < 1 && gradient.defined()) gradient.mul_(factor);
  return update;
}

}  // namespace yoke::parallel
