// A schedule generated minibatch by minibatch, for runs of unknown length.
//
// Schedules with a flush repeat the same list. The others continue: micro-batches in flight at the end of a
// minibatch are finished in the following ones, or by drain().
#pragma once

#include <vector>

#include "yoke/plan/schedules/schedule.h"

namespace yoke::plan {

struct StreamAction {
  ScheduleAction action;
  // The weights of its version are not needed again (for an update: those of the version before it).
  bool last_use = false;
  bool operator==(const StreamAction&) const = default;
};

class ScheduleStream {
 public:
  // request.minibatches is ignored. Throws ConfigError like make_schedule().
  ScheduleStream(ScheduleRequest request, int worker);

  // The worker's actions from the first one for the next minibatch up to the first one for the minibatch
  // after that. Micro-batches and versions are counted from the start or the last drain().
  std::vector<StreamAction> next();
  // The remaining actions if no minibatch follows. The stream then restarts at version 0.
  std::vector<StreamAction> drain();

  // Number of minibatches since the start or the last drain().
  int minibatches() const { return minibatches_; }

 private:
  std::vector<StreamAction> list(int minibatches) const;
  std::vector<StreamAction> shifted(std::vector<StreamAction> actions) const;
  int equivalent(int minibatches) const;

  ScheduleRequest request_;
  size_t worker_;
  int settled_;     // after this many minibatches the lists are periodic
  int period_ = 1;  // in minibatches
  int updates_per_period_ = 0;
  int minibatches_ = 0;
  std::vector<StreamAction> long_list_;
};

}  // namespace yoke::plan
