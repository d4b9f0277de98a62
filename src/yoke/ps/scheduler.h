// Decides for all servers: runs the one policy, hands out work, and counts.
//
// A worker that has a gradient asks before it sends any of it, so that no undecided gradient is ever held;
// the answer names the update it goes into. No I/O of its own: what is to be sent goes through SchedulerWire.
// One thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "yoke/plan/policies/delay_schedule.h"
#include "yoke/plan/policies/policy.h"
#include "yoke/ps/accounting.h"
#include "yoke/ps/messages.h"

namespace yoke::ps {

// One update as it was decided.
struct UpdateRecord {
  int64_t version = 0;
  double time = 0;  // seconds since the first release
  int64_t gradients = 0;
  double loss = 0;  // mean of its gradients
  double staleness = 0;
  int64_t k = 0;
  std::optional<int64_t> max_delay{};  // where the rule has one
};

struct SchedulerOptions {
  plan::PolicyOptions policy;
  int64_t updates = 0;  // the run ends at this version; 0: never by itself
  // Of bounded_delay and ssp, in place of policy.max_delay; empty: that holds throughout.
  std::vector<plan::DelayStep> delay_schedule{};
  int64_t warm_up = 0;     // updates that are not counted
  int64_t warm_start = 0;  // updates that the first worker makes alone
  // What a stale gradient counts: all of it; 1/staleness; or so that its step is at most
  // min(distance_c / |w_now - w_then|^2, distance_max).
  std::string stale_step = "full";  // full inverse distance
  double distance_c = 1;
  double distance_max = 1;
  // Updates of gradients of one version are clipped to this norm; 0: they are not.
  double clip_norm = 0;
  bool adasync = false;        // K follows the loss, looked at every
  double adasync_seconds = 1;  // seconds
  // May be empty. What they throw is logged: no update waits for its record.
  std::function<void(const UpdateRecord&)> on_update;
  std::function<void(const std::string&)> say;  // news for people
};

struct SchedulerWire {
  std::function<void(int worker, const ReleaseHead&)> release;
  std::function<void(const UpdateHead&, const std::vector<Contributor>&)> update;  // to all servers
  std::function<void(int worker, const StopHead&)> stop;
  std::function<void()> ended{};  // to all servers: no update will be decided any more; may be empty
};

class Scheduler {
 public:
  // Throws ConfigError as plan::validate() does.
  Scheduler(SchedulerOptions options, SchedulerWire wire);

  // The run ends at this version.
  void set_updates(int64_t updates) { options_.updates = updates; }
  // Work begins on `version` once all workers that are not lost have joined. A worker that was lost and joins
  // again, in another `life`, goes on with what is current.
  void joined(int worker, int64_t version, int64_t life = 0);
  // Throws CommError naming the worker when it claims something it was never given.
  GrantReply finished(int worker, const FinishedHead& head);
  // Ended, well or not. `lost`: it did not say so itself.
  void left(int worker, bool lost, const std::string& why);
  // Turns the dial of bounded_delay and ssp, until it is turned again. Throws ConfigError where the rule has
  // none.
  void set_max_delay(int64_t max_delay);
  // A sign of life of a worker that does something else than compute.
  void seen(int worker);
  // Who has been waited for longest: it computes, or has not joined.
  LateReply who_is_late() const;
  // Ends the run. `signal`: why; 0: it is done.
  void stop(int64_t signal);

  // What the servers have, or will have when all pushes are in.
  int64_t version() const { return told_version_; }
  bool stopped() const { return stopped_; }
  int64_t k() const;
  Accounting accounting() const;

 private:
  struct Desk {
    bool here = false;
    bool computing = false;
    int64_t life = 0;
    double since = 0;  // it computes, or waits
    double seen = 0;   // last, whatever it did
    WorkerTime time;
  };

  void count_loss(double loss);
  bool in_order() const;
  StopHead stop_head() const;
  void begin_when_all_are_here();
  void begin();
  void obey(const plan::Decision& decision);
  void send_releases(const std::vector<plan::Release>& releases);
  void note_update(const plan::Update& update);
  void tell_update(double weight);
  void begin_measuring();
  void turn_dial();
  void follow_schedule();
  void end_warm_start();
  void restore_k();
  bool combines() const;
  double scale_of(const FinishedHead& head, int64_t staleness) const;
  Desk& desk(int worker) { return desks_[static_cast<size_t>(worker)]; }

  SchedulerOptions options_;
  SchedulerWire wire_;
  std::optional<plan::Policy> policy_;
  std::vector<Desk> desks_;
  std::set<int> lost_early_;  // before work began
  // bounded_delay with no delay: the servers apply a round at once, as `sync` does, so that optimizers with a
  // memory do the same, and nobody reads half a round.
  bool by_rounds_ = false;
  int64_t start_version_ = 0;
  int64_t updates_told_ = 0;
  int64_t told_version_ = 0;
  size_t next_delay_ = 0;             // in the schedule
  std::vector<Contributor> untold_;   // gradients that the servers have not been told of
  std::vector<Contributor> pending_;  // gradients of the next update
  std::vector<double> pending_losses_;
  int64_t pending_staleness_ = 0;
  double lr_ = 0;
  double last_loss_ = 0;  // of the last update
  LossCurve curve_;
  int64_t losses_ = 0;  // of all gradients that counted, as far as they are finite
  double loss_total_ = 0;
  int64_t gradients_ = 0;
  int64_t samples_ = 0;
  const double made_;  // seconds
  bool warm_starting_ = false;
  bool stopped_ = false;
  int64_t stop_signal_ = 0;
  double begun_ = 0;  // seconds
  double measured_from_ = 0;
  bool measuring_ = false;
  Accounting counts_;
  // AdaSync
  double looked_at_ = 0, loss_sum_ = 0, first_loss_ = 0;
  int64_t loss_count_ = 0;
};

}  // namespace yoke::ps
