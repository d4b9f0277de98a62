// A schedule handed out minibatch by minibatch, for a run that does not know how long it will be.
//
// Schedules that flush are the same list each time. The others run on: what is under way at the end of a
// minibatch is finished in the next ones, or by drain().
#pragma once

#include <vector>

#include "yoke/plan/schedules/schedule.h"

namespace yoke::plan {

struct StreamAction {
  ScheduleAction action;
  // The weights of its version are not needed again (of an update: those of the version before it).
  bool last_use = false;
  bool operator==(const StreamAction&) const = default;
};

class ScheduleStream {
 public:
  // `request.minibatches` does not matter. Throws ConfigError as make_schedule().
  ScheduleStream(ScheduleRequest request, int worker);

  // What the worker does from its first action for the next minibatch until just before the one after it.
  // Micro-batches and versions are counted from the start, or from the last drain().
  std::vector<StreamAction> next();
  // What is left after that, if no minibatch follows. The stream then starts anew, with version 0.
  std::vector<StreamAction> drain();

  // Minibatches since the start or the last drain().
  int minibatches() const { return minibatches_; }

 private:
  std::vector<StreamAction> list(int minibatches) const;
  std::vector<StreamAction> shifted(std::vector<StreamAction> actions) const;
  int equivalent(int minibatches) const;

  ScheduleRequest request_;
  size_t worker_;
  int settled_;     // after so many minibatches the lists repeat themselves
  int period_ = 1;  // with so many minibatches
  int updates_per_period_ = 0;
  int minibatches_ = 0;
  std::vector<StreamAction> long_list_;
};

}  // namespace yoke::plan
