// Makes the decisions for all servers: runs the policy, assigns work, and keeps statistics.
//
// A worker asks before it pushes a gradient, so that undecided gradients are never stored; the reply names
// the update it belongs to. No I/O: messages go through SchedulerWire. Not thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "yoke/kernels/loss_scale.h"
#include "yoke/plan/policies/delay_schedule.h"
#include "yoke/plan/policies/policy.h"
#include "yoke/ps/accounting.h"
#include "yoke/ps/archive.h"
#include "yoke/ps/batch_order.h"
#include "yoke/ps/messages.h"
#include "yoke/ps/status.h"

namespace yoke::ps {

// One update, as decided.
struct UpdateRecord {
  int64_t version = 0;
  double time = 0;  // seconds since the first release
  int64_t gradients = 0;
  double loss = 0;  // mean over its gradients
  double staleness = 0;
  int64_t k = 0;
  std::optional<int64_t> max_delay{};  // if the rule has one
  std::vector<int64_t> batches{};      // of its gradients, where they are handed out
};

struct SchedulerOptions {
  plan::PolicyOptions policy;
  // Of policy.workers: those at the start, if the others may join later; 0: all.
  int workers_at_start = 0;
  int min_workers = 1;  // after a loss that leaves fewer, the run has failed
  // Hands out batches (ps/batch_order.h), and lets workers leave.
  bool hands_out = false;
  int64_t updates = 0;  // the run ends at this version; 0: not by itself
  // bounded_delay and ssp: replaces policy.max_delay; empty: no schedule.
  std::vector<plan::DelayStep> delay_schedule{};
  int64_t warm_up = 0;     // updates excluded from the statistics
  int64_t warm_start = 0;  // initial updates by the first worker alone
  // Weight of a stale gradient: full; 1/staleness; or such that its step is at most min(distance_c / |w_now -
  // w_then|^2, distance_max).
  std::string stale_step = "full";  // full inverse distance
  double distance_c = 1;
  double distance_max = 1;
  // Updates of gradients of one version are clipped to this norm; 0: no clipping.
  double clip_norm = 0;
  bool adasync = false;        // K follows the loss
  double adasync_seconds = 1;  // seconds between adjustments
  // May be empty. Exceptions are logged, so that they cannot interrupt an update.
  std::function<void(const UpdateRecord&)> on_update;
  std::function<void(const std::string&)> say;       // messages for the user
  std::function<void(const std::string&)> failed{};  // too few workers are left; may be empty
  std::function<double()> now{};                     // seconds; empty: now_seconds()
};

struct SchedulerWire {
  std::function<void(int worker, const ReleaseHead&)> release;
  std::function<void(const UpdateHead&, const std::vector<Contributor>&)> update;  // to all servers
  std::function<void(int worker, const StopHead&)> stop;
  std::function<void()> ended{};  // to all servers: no more updates will be decided; may be empty
};

class Scheduler {
 public:
  // Throws ConfigError like plan::validate().
  Scheduler(SchedulerOptions options, SchedulerWire wire);

  // Sets the version at which the run ends.
  void set_updates(int64_t updates) { options_.updates = updates; }
  // From now on the workers scale their losses by one scale, which follows overflows. Throws CommError if it
  // is out of range, or if the rule's updates consume gradients of several versions.
  void set_loss_scale(const kernels::LossScale& scale);
  // Work starts at `version` once all workers that are not lost have joined. A lost worker that rejoins, in
  // another `life`, continues with the current version.
  void joined(int worker, int64_t version, int64_t life = 0);
  // Throws CommError naming the worker if it claims work that was never assigned to it.
  GrantReply finished(int worker, const FinishedHead& head);
  // The worker has ended. `lost`: without a goodbye.
  void left(int worker, bool lost, const std::string& why);
  // Why let_go() would be wrong; empty: it is not.
  std::string why_not_let_go(int worker) const;
  // Lets a worker leave once the gradient that it computes has counted.
  void let_go(int worker);
  // Changes the maximum delay of bounded_delay and ssp. Throws ConfigError if the rule has none.
  void set_max_delay(int64_t max_delay);
  // Records a sign of life of a worker that is not computing.
  void seen(int worker);
  // The worker that has been waited for longest: it computes, or has not joined.
  LateReply who_is_late() const;
  // Ends the run. `signal`: the reason; 0: it is done.
  void stop(int64_t signal);

  // The version the servers have, or will have once all pushes have arrived.
  int64_t version() const { return told_version_; }
  bool stopped() const { return stopped_; }
  int64_t k() const;
  Accounting accounting() const;
  std::vector<WorkerStatus> worker_status() const;

  // All that its decisions depend on, for another copy of it with the same options. load() throws CommError
  // if it does not fit.
  void save(Saver& saver) const;
  void load(Loader& loader);

 private:
  struct Desk {
    bool here = false;
    bool computing = false;
    bool known = false;    // has joined before
    bool leaving = false;  // it was asked to
    int64_t life = 0;
    double since = 0;  // start of computing or waiting
    double seen = 0;   // last sign of life
    WorkerTime time;
  };

  template <class Archive>
  void exchange(Archive& archive);
  double now() const;
  void count_loss(double loss);
  bool in_order() const;
  StopHead stop_head() const;
  ScaleHead scale_head() const;
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
  bool is_late(int worker) const;  // was not there at the start
  int workers_here() const;
  void send_off();
  bool was_sent_off(int worker) const;
  void check_enough(int worker);
  Desk& desk(int worker) { return desks_[static_cast<size_t>(worker)]; }

  SchedulerOptions options_;
  SchedulerWire wire_;
  std::optional<plan::Policy> policy_;
  std::vector<Desk> desks_;
  std::set<int> lost_early_;  // before work started; and who has not joined yet
  BatchOrder batches_;
  // bounded_delay with delay 0: servers apply a whole round at once, like `sync`, so that stateful optimizers
  // behave identically and nobody reads half a round.
  bool by_rounds_ = false;
  int64_t start_version_ = 0;
  int64_t updates_told_ = 0;
  int64_t told_version_ = 0;
  size_t next_delay_ = 0;             // index into the schedule
  std::vector<Contributor> untold_;   // not sent to the servers yet
  std::vector<Contributor> pending_;  // of the next update
  std::vector<double> pending_losses_;
  std::vector<int64_t> pending_batches_;
  int64_t pending_staleness_ = 0;
  double lr_ = 0;
  bool scales_ = false;  // losses, by loss_scale_
  kernels::LossScale loss_scale_;
  bool overflow_ = false;  // a gradient of the next update
  bool skipped_ = false;   // the last update
  double last_loss_ = 0;   // of the last update
  LossCurve curve_;
  int64_t losses_ = 0;  // number of finite losses of accepted gradients
  double loss_total_ = 0;
  int64_t gradients_ = 0;
  int64_t samples_ = 0;
  const double made_;  // time of creation, seconds
  bool warm_starting_ = false;
  bool stopped_ = false;
  int64_t stop_signal_ = 0;
  double begun_ = 0;  // time of the first release, seconds
  double measured_from_ = 0;
  bool measuring_ = false;
  Accounting counts_;
  // AdaSync
  double looked_at_ = 0, loss_sum_ = 0, first_loss_ = 0;
  int64_t loss_count_ = 0;
};

}  // namespace yoke::ps
