// The part of Scheduler for workers that join and leave while it runs.
#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/ps/scheduler.h"

namespace yoke::ps {

bool Scheduler::is_late(int worker) const {
  return options_.workers_at_start > 0 && worker >= options_.workers_at_start;
}

// Without those that were asked to leave.
int Scheduler::workers_here() const {
  return static_cast<int>(
      std::count_if(desks_.begin(), desks_.end(), [](const Desk& one) { return one.here && !one.leaving; }));
}

std::string Scheduler::why_not_let_go(int worker) const {
  if (!options_.hands_out)
    return "the set of workers is fixed (ps.max_workers = 0). Start the job with ps.max_workers to let "
           "workers "
           "leave";
  if (worker == 0) return "worker 0 cannot leave: it writes records and checkpoints";
  const bool exists = worker > 0 && static_cast<size_t>(worker) < desks_.size();
  if (!exists || !desks_[static_cast<size_t>(worker)].here)
    return fmt::format("worker {} is not in this job", worker);
  if (desks_[static_cast<size_t>(worker)].leaving) return fmt::format("worker {} is leaving already", worker);
  if (stopped_) return fmt::format("worker {} ends with the job, which has done its last update", worker);
  if (!policy_) return "the job is still starting: not all workers have joined";
  if (workers_here() <= options_.min_workers)
    return fmt::format("worker {} cannot leave: there are {}, and ps.min_workers = {}", worker,
                       workers_here(), options_.min_workers);
  return "";
}

void Scheduler::let_go(int worker) {
  if (const std::string refusal = why_not_let_go(worker); !refusal.empty()) throw CommError("{}", refusal);
  desk(worker).leaving = true;
  send_off();
}

// Between two minibatches of theirs: what they were given meanwhile is void.
void Scheduler::send_off() {
  for (size_t worker = 0; worker < desks_.size() && !stopped_; ++worker) {
    Desk& own = desks_[worker];
    if (!own.leaving || !own.here || own.computing) continue;
    own.here = false;
    const auto id = static_cast<int>(worker);
    batches_.give_back(id);
    if (options_.say)
      options_.say(fmt::format("worker {} leaves at version {}; workers: {}", id, version(), workers_here()));
    wire_.stop(id, stop_head());
    obey(policy_->left(id));
  }
}

// An update cancels what a leaving worker computes, and it may not have heard of either yet.
bool Scheduler::was_sent_off(int worker) const {
  const bool exists = worker >= 0 && static_cast<size_t>(worker) < desks_.size();
  return exists && desks_[static_cast<size_t>(worker)].leaving && !desks_[static_cast<size_t>(worker)].here;
}

// After a loss.
void Scheduler::check_enough(int worker) {
  if (stopped_ || workers_here() >= options_.min_workers || !options_.failed) return;
  options_.failed(fmt::format("worker {} is lost: {} left, and ps.min_workers = {}", worker, workers_here(),
                              options_.min_workers));
}

}  // namespace yoke::ps
