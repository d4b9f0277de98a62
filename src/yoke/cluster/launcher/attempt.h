// One attempt of a job on this machine: starts its ranks and watches them until the last has ended.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "yoke/base/deadline.h"
#include "yoke/cluster/launcher/child_environment.h"
#include "yoke/cluster/launcher/guardian.h"
#include "yoke/cluster/launcher/hosting.h"
#include "yoke/cluster/launcher/orphans.h"
#include "yoke/cluster/launcher/rank_output.h"
#include "yoke/cluster/launcher/signals.h"
#include "yoke/cluster/launcher/verdict.h"
#include "yoke/cluster/launcher/zygote.h"

namespace yoke::cluster {

// Timeouts for ranks, in seconds.
struct Patience {
  static constexpr double kDeaf = 0.5;  // after a failure: for ranks that never joined and are not informed
  static constexpr double kOwnEnd = 5;  // after a failure: for ranks to exit with their own error
  static constexpr double kTerminate = 5;   // after that and SIGTERM
  static constexpr double kInterrupt = 10;  // after SIGINT, SIGHUP or SIGQUIT by the user
  static constexpr double kPreempt = 25;    // after SIGTERM by the user: Kubernetes kills after 30
  static constexpr double kDrain = 1;  // for output kept open by processes other than the rank, while idle
  static constexpr double kLongDrain = 30;  // likewise, while they write
  static constexpr double kStopped = 2.5;   // until a stopped rank counts as a failure
  static constexpr double kAsk = 0.2;       // between queries whether a job with a stopped rank is over
  static constexpr int kKills = 4;          // SIGKILLs before a process counts as stuck in the kernel
};

// Shared by all attempts of a job.
struct Workplace {
  const LaunchOptions& options;
  const Guardian& guardian;
  Orphans& orphans;
  SignalReader& signals;
  Console& console;
  std::string program;  // path of the executable
  std::string host;
};

// One thread. Phases: running; after a failure winding down (ranks exit by themselves), then SIGTERM, then
// SIGKILL.
class Attempt {
 public:
  // `folder`: for the logs of this attempt.
  Attempt(const Workplace& work, const JobPlace& place, const Hosting& hosting, std::filesystem::path folder);
  ~Attempt();  // kills what is still running

  // Returns once every rank has ended and all output is written.
  Verdict run();

  int interrupted_by() const { return interrupted_by_; }  // signal; 0: none
  // Last lines of the rank's stderr; empty if the rank is not on this machine.
  std::deque<std::string> last_lines(int rank) const;

 private:
  struct Child {
    int rank = 0;
    int life = 0;  // restart count
    pid_t pid = 0;
    bool running = false;
    bool asked = false;
    std::optional<Deadline> stopped;  // by SIGSTOP: until it counts as a failure
    std::optional<Deadline> drain;
    std::unique_ptr<RankOutput> output;
  };
  enum class Phase { kRunning, kWinding, kTerminating, kKilling };

  ChildSpec spec_of(int local_rank) const;
  void start_zygote();
  // Starts a rank with its output pipes.
  void start(int local_rank, int life = 0);
  // Polls output, signals and the console once.
  void wait_for_news();
  void read_output(const std::vector<pollfd>& polls);
  bool abandoned(const Child& child, bool readable) const;
  int tick_ms() const;
  void on_signal(int signal);
  void forward(int signal, double patience);
  void hand_on(int signal);
  bool stopped_as_asked(int wait_status) const;
  // Handles children that have ended: kills their process groups, records how they ended, restarts expendable
  // ones.
  void reap();
  void reap_orphans();
  void on_end(Child& child, int wait_status);
  bool expendable(int rank) const;
  bool elastic() const { return work_.options.elastic_min > 0; }
  bool forgiven(const Child& child, int wait_status) const;
  bool was_evicted(int rank) const;  // asks the coordinator, wherever it is
  bool starts_again(const Child& child, int wait_status) const;
  void revive();
  // To the coordinator, wherever it is.
  void report(const FailureReport& report) const;
  // Winds down if the coordinator knows of a failure.
  void look_at_coordinator();
  void wind_down();
  // Moves to the next phase when the current one has run out of time.
  void check_time();
  void kill_stopped();
  void note_stops();
  // Reports ranks that are stopped (SIGSTOP) and do not continue.
  void look_at_stopped();
  // Ends ranks without which the job continues: they may be stopped, and hold what others need.
  void end_evicted();
  // Sends a signal to the process groups of running ranks. `only_missing`: those that never joined.
  void send(int signal, bool only_missing = false);
  void enter(Phase phase, double seconds);
  void kill_and_reap();
  void give_up();
  bool busy() const;
  const FailureReport* known() const;

  Workplace work_;
  const JobPlace& place_;
  const Hosting& hosting_;
  std::filesystem::path folder_;
  std::unique_ptr<Zygote> zygote_;  // nullptr: ranks are started by themselves
  std::vector<Child> children_;
  std::vector<ChildEnd> ends_;
  std::vector<std::pair<int, int>> to_revive_;  // local rank and life
  std::shared_ptr<const FailureReport> known_;
  Phase phase_ = Phase::kRunning;
  std::optional<Deadline> phase_end_;
  std::optional<Deadline> deaf_end_;
  int kills_ = 0;
  int interrupted_by_ = 0;
  std::vector<int> handed_on_;  // forwarded signals that may mean "save and stop"
  std::optional<Deadline> next_question_;
};

}  // namespace yoke::cluster
