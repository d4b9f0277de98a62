// One life of a job's ranks on this machine: from start to the end of the last of them.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "yoke/base/deadline.h"
#include "yoke/cluster/coordinator.h"
#include "yoke/cluster/launcher/child_environment.h"
#include "yoke/cluster/launcher/guardian.h"
#include "yoke/cluster/launcher/orphans.h"
#include "yoke/cluster/launcher/rank_output.h"
#include "yoke/cluster/launcher/signals.h"
#include "yoke/cluster/launcher/verdict.h"

namespace yoke::cluster {

// How long ranks are waited for, in seconds.
struct Patience {
  static constexpr double kDeaf = 0.5;  // after a failure: for those who never joined and cannot hear of it
  static constexpr double kOwnEnd = 5;  // after a failure: to end with their own error
  static constexpr double kTerminate = 5;   // then, after SIGTERM
  static constexpr double kInterrupt = 10;  // after SIGINT, SIGHUP or SIGQUIT of the user
  static constexpr double kPreempt = 25;    // after SIGTERM of the user: Kubernetes kills after 30
  static constexpr double kDrain = 1;       // for output that others than the rank hold open and do not use
  static constexpr double kLongDrain = 30;  // likewise, when they do
  static constexpr double kStopped = 2.5;   // for a stopped rank to be continued
  static constexpr double kAsk = 0.2;       // between questions whether a job with a stopped rank is over
  static constexpr int kKills = 4;          // SIGKILLs before a process counts as stuck in the kernel
};

// What is shared by all attempts.
struct Workplace {
  const LaunchOptions& options;
  const Guardian& guardian;
  Orphans& orphans;
  SignalReader& signals;
  Console& console;
  std::string program;  // its path
  std::string host;
};

class Attempt {
 public:
  // `coordinator` is null on machines that do not host it. `folder` is for this attempt's logs.
  Attempt(const Workplace& work, const JobPlace& place, Coordinator* coordinator,
          std::filesystem::path folder);
  ~Attempt();  // nothing is left running

  // Until every rank has ended and all output is written.
  Verdict run();

  int interrupted_by() const { return interrupted_by_; }  // signal, 0 for none
  // Last lines of stderr, empty when the rank is not of this machine.
  std::deque<std::string> last_lines(int rank) const;

 private:
  struct Child {
    int rank = 0;
    int life = 0;  // started again so often
    pid_t pid = 0;
    bool running = false;
    bool asked = false;
    std::optional<Deadline> stopped;  // by SIGSTOP: until it counts as a failure
    std::optional<Deadline> drain;
    std::unique_ptr<RankOutput> output;
  };
  enum class Phase { kRunning, kWinding, kTerminating, kKilling };

  void start(int local_rank, int life = 0);
  void wait_for_news();
  void read_output(const std::vector<pollfd>& polls);
  bool abandoned(const Child& child, bool readable) const;
  int tick_ms() const;
  void on_signal(int signal);
  void forward(int signal, double patience);
  void hand_on(int signal);
  bool stopped_as_asked(int wait_status) const;
  void reap();
  void reap_orphans();
  void on_end(Child& child, int wait_status);
  bool expendable(int rank) const;
  bool forgiven(const Child& child, int wait_status) const;
  bool starts_again(const Child& child, int wait_status) const;
  void revive();
  void look_at_coordinator();
  void wind_down();
  void check_time();
  void kill_stopped();
  void note_stops();
  void look_at_stopped();
  void send(int signal, bool only_missing = false);
  void enter(Phase phase, double seconds);
  void kill_and_reap();
  void give_up();
  bool busy() const;
  const FailureReport* known() const;

  Workplace work_;
  const JobPlace& place_;
  Coordinator* coordinator_;
  std::filesystem::path folder_;
  std::vector<Child> children_;
  std::vector<ChildEnd> ends_;
  std::vector<std::pair<int, int>> to_revive_;  // local rank and life
  std::shared_ptr<const FailureReport> known_;
  Phase phase_ = Phase::kRunning;
  std::optional<Deadline> phase_end_;
  std::optional<Deadline> deaf_end_;
  int kills_ = 0;
  int interrupted_by_ = 0;
  std::vector<int> handed_on_;  // signals that may mean "save and stop", or anything else
  std::optional<Deadline> next_question_;
};

}  // namespace yoke::cluster
