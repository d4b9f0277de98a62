// Saves and loads the state of the scheduler, for a server that gets a copy of it while training continues.
#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/ps/scheduler.h"

namespace yoke::ps {

template <class Archive>
void Scheduler::exchange(Archive& archive) {
  archive(options_.updates);
  archive(options_.policy);
  archive(options_.delay_schedule);
  archive(desks_);
  archive(by_rounds_);
  archive(start_version_);
  archive(updates_told_);
  archive(told_version_);
  archive(next_delay_);
  archive(untold_);
  archive(pending_);
  archive(pending_losses_);
  archive(pending_batches_);
  batches_.exchange(archive);
  archive(pending_staleness_);
  archive(lr_);
  archive(scales_);
  archive(loss_scale_);
  archive(overflow_);
  archive(skipped_);
  archive(last_loss_);
  curve_.exchange(archive);
  archive(losses_);
  archive(loss_total_);
  archive(gradients_);
  archive(samples_);
  archive(warm_starting_);
  archive(stopped_);
  archive(stop_signal_);
  archive(begun_);
  archive(measured_from_);
  archive(measuring_);
  counts_.exchange(archive);
  archive(looked_at_);
  archive(loss_sum_);
  archive(first_loss_);
  archive(loss_count_);
}

void Scheduler::save(Saver& saver) const {
  auto& self = const_cast<Scheduler&>(*this);  // a Saver reads only
  self.exchange(saver);
  saver(std::vector<int>(lost_early_.begin(), lost_early_.end()));
  saver(policy_.has_value());
  if (policy_) self.policy_->exchange(saver);
}

void Scheduler::load(Loader& loader) {
  const size_t workers = desks_.size();
  const plan::Rule rule = options_.policy.rule;
  exchange(loader);
  std::vector<int> lost_early;
  loader(lost_early);
  bool begun = false;
  loader(begun);
  if (desks_.size() != workers || !batches_.fits(workers) || options_.policy.rule != rule ||
      next_delay_ > options_.delay_schedule.size())
    throw CommError("the state of a scheduler of {} workers does not fit one of {}", desks_.size(), workers);
  lost_early_ = {lost_early.begin(), lost_early.end()};
  policy_.reset();
  if (!begun) return;
  policy_.emplace(options_.policy, told_version_);
  policy_->exchange(loader);
}

}  // namespace yoke::ps
