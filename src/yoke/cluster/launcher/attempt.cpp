#include "yoke/cluster/launcher/attempt.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/fault.h"
#include "yoke/base/log.h"
#include "yoke/base/terminal.h"
#include "yoke/cluster/launch_env.h"
#include "yoke/cluster/launcher/child.h"
#include "yoke/cluster/launcher/herald.h"

namespace yoke::cluster {

Attempt::Attempt(const Workplace& work, const JobPlace& place, const Hosting& hosting,
                 std::filesystem::path folder)
    : work_(work), place_(place), hosting_(hosting), folder_(std::move(folder)) {
  children_.reserve(static_cast<size_t>(work_.options.local_size()));
  try {
    start_zygote();
    for (int local_rank = 0; local_rank < work_.options.local_size(); ++local_rank) start(local_rank);
  } catch (...) {
    kill_and_reap();  // the destructor does not run if the constructor throws
    throw;
  }
}

Attempt::~Attempt() {
  kill_and_reap();
}

void Attempt::kill_and_reap() {
  zygote_.reset();
  send(SIGKILL);
  for (Child& child : children_) {
    if (!child.running) continue;
    work_.guardian.remove(child.pid);
    ::waitpid(child.pid, nullptr, 0);
    child.running = false;
  }
  work_.orphans.end_all();
}

ChildSpec Attempt::spec_of(int local_rank) const {
  ChildSpec spec;
  spec.path = work_.program;
  spec.arguments = work_.options.program;
  spec.environment = rank_environment(work_.options, place_, local_rank, environment(), usable_cores());
  spec.mask = work_.signals.previous_mask();
  return spec;
}

void Attempt::start_zygote() try {
  if (work_.options.zygote.empty() || work_.options.local_size() < 2 || !zygotes_wanted()) return;
  zygote_ = std::make_unique<Zygote>(work_.options.zygote, spec_of(0), spec_of(1), work_.guardian);
} catch (const ConfigError&) {
  // The ranks will say why it cannot be executed.
}

void Attempt::start(int local_rank, int life) {
  const LaunchOptions& options = work_.options;
  Child child;
  child.rank = first_rank(options) + local_rank;
  child.life = life;
  std::string name = life == 0 ? std::to_string(child.rank) : fmt::format("{}.{}", child.rank, life);
  std::filesystem::path logs = folder_.empty() ? folder_ : folder_ / name;
  child.output = std::make_unique<RankOutput>(options, local_rank, logs);
  // A background process group may not read from the terminal; a file or pipe goes to the first rank.
  net::Descriptor null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  bool reads = local_rank == 0 && !terminal::is_terminal(STDIN_FILENO);
  ChildSpec spec = spec_of(local_rank);
  spec.stdin_fd = reads ? STDIN_FILENO : null.get();
  spec.stdout_fd = child.output->stdout_for_child();
  spec.stderr_fd = child.output->err.child_end();
  if (fault::at(fault::Point::kLauncherSpawn, child.rank) == fault::Effect::kError)
    throw Error(ExitCode::kInternal, fmt::format("launcher: cannot start rank {} (YOKE_FAULT)", child.rank));
  std::optional<pid_t> forked;
  if (zygote_) forked = zygote_->fork_rank(spec);
  child.pid = forked ? *forked : start_child(spec, work_.guardian);
  child.running = true;
  if (child.output->out) child.output->out->close_child_end();
  child.output->err.close_child_end();
  children_.push_back(std::move(child));
}

Verdict Attempt::run() {
  while (busy()) {
    wait_for_news();
    for (int signal : work_.signals.read()) on_signal(signal);
    reap();
    look_at_coordinator();
    look_at_stopped();
    end_evicted();
    check_time();
    if (work_.console.stdout_closed() && interrupted_by_ == 0) forward(SIGPIPE, Patience::kInterrupt);
  }
  look_at_coordinator();
  // An elastic job that nobody finished has failed, whoever was last.
  const bool finished =
      std::any_of(ends_.begin(), ends_.end(), [](const ChildEnd& end) { return end.wait_status == 0; });
  if (elastic() && !finished && !ends_.empty()) ends_.back().forgiven = false;
  return judge(ends_, known(), work_.host);
}

bool Attempt::busy() const {
  return std::any_of(children_.begin(), children_.end(), [](const Child& child) {
    return child.running || child.output->err.open() || (child.output->out && child.output->out->open());
  });
}

void Attempt::wait_for_news() {
  std::vector<pollfd> polls = {{work_.signals.fd(), POLLIN, 0}};
  work_.console.add_polls(polls);
  size_t first_stream = polls.size();
  if (!work_.console.full()) {
    for (const Child& child : children_) {
      if (child.output->out && child.output->out->open())
        polls.push_back({child.output->out->fd(), POLLIN, 0});
      if (child.output->err.open()) polls.push_back({child.output->err.fd(), POLLIN, 0});
    }
  }
  ::poll(polls.data(), polls.size(), tick_ms());
  polls.erase(polls.begin(), polls.begin() + static_cast<std::ptrdiff_t>(first_stream));
  read_output(polls);
  work_.console.pump();
}

// Child exits and signals interrupt poll(); only the coordinator's state and deadlines need a tick.
int Attempt::tick_ms() const {
  bool waits =
      phase_ != Phase::kRunning || std::any_of(children_.begin(), children_.end(),
                                               [](const Child& child) { return child.drain.has_value(); });
  return waits ? 20 : static_cast<int>(work_.options.monitor_interval * 1000) + 1;
}

void Attempt::read_output(const std::vector<pollfd>& polls) {
  auto ready = [&](int fd) {
    return std::any_of(polls.begin(), polls.end(),
                       [&](const pollfd& p) { return p.fd == fd && p.revents != 0; });
  };
  for (Child& child : children_) {
    // Output is not lost because our own reader is slow; but a user who interrupts does not wait for it.
    if (child.drain && work_.console.full() && interrupted_by_ == 0)
      child.drain = Deadline::after(Patience::kDrain);
    for (RankStream* stream : {child.output->out.get(), &child.output->err}) {
      if (stream == nullptr || !stream->open()) continue;
      bool readable = ready(stream->fd());
      if (readable) stream->pump(work_.console);
      if (stream->open() && abandoned(child, readable)) stream->finish(work_.console);
    }
  }
}

// Processes started by the rank may keep its output open forever.
bool Attempt::abandoned(const Child& child, bool readable) const {
  if (!child.drain || !child.drain->passed()) return false;
  return !readable || phase_ == Phase::kKilling || child.drain->elapsed() > Patience::kLongDrain;
}

void Attempt::on_signal(int signal) {
  switch (signal) {
    case SIGCHLD:
      return note_stops();
    case SIGUSR1:
    case SIGUSR2:
    case SIGXCPU:
      return hand_on(signal);
    case SIGTERM:
      return forward(signal, Patience::kPreempt);
    default:
      return forward(signal, Patience::kInterrupt);
  }
}

// It may mean "save and stop" (Slurm's --signal, a CPU time limit) or anything else: the exit codes will
// tell.
void Attempt::hand_on(int signal) {
  handed_on_.push_back(signal);
  send(signal);
}

bool Attempt::stopped_as_asked(int wait_status) const {
  return std::any_of(handed_on_.begin(), handed_on_.end(),
                     [&](int signal) { return exit_code_of(wait_status) == 128 + signal; });
}

void Attempt::forward(int signal, double patience) {
  bool again = interrupted_by_ != 0;
  if (!again) interrupted_by_ = signal;
  if (again && signal == SIGINT) {
    log::warn("interrupted again: killing the ranks");
    send(SIGKILL);
    return enter(Phase::kKilling, Patience::kTerminate);
  }
  send(signal == SIGPIPE ? SIGTERM : signal);
  send(SIGCONT);  // wakes stopped ranks, so that they receive it
  if (!again && phase_ != Phase::kKilling) enter(Phase::kTerminating, patience);
  if (!again && signal == SIGINT)
    log::info("interrupted: ranks have {} s to exit; press Ctrl-C again to kill them", Patience::kInterrupt);
}

void Attempt::reap() {
  for (Child& child : children_) {
    if (!child.running) continue;
    siginfo_t info{};
    // WNOWAIT: until the zombie is reaped, its pid and process group id cannot be reused.
    if (::waitid(P_PID, static_cast<id_t>(child.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0)
      continue;
    ::kill(-child.pid, SIGKILL);  // processes it has left behind
    work_.guardian.remove(child.pid);
    int wait_status = 0;
    ::waitpid(child.pid, &wait_status, 0);
    child.running = false;
    child.drain = Deadline::after(Patience::kDrain);
    on_end(child, wait_status);
  }
  reap_orphans();
  revive();
}

// A daemon may still serve its rank: daemons are killed after the last rank.
void Attempt::reap_orphans() {
  bool running =
      std::any_of(children_.begin(), children_.end(), [](const Child& child) { return child.running; });
  if (!running) {
    zygote_.reset();
    return work_.orphans.end_all();
  }
  work_.orphans.reap([&](pid_t pid) {
    if (zygote_ && zygote_->pid() == pid) return true;
    return std::any_of(children_.begin(), children_.end(),
                       [&](const Child& child) { return child.running && child.pid == pid; });
  });
}

void Attempt::on_end(Child& child, int wait_status) {
  if (stopped_as_asked(wait_status)) child.asked = true;
  if (phase_ == Phase::kRunning && interrupted_by_ == 0 && stopped_as_asked(wait_status)) {
    interrupted_by_ = exit_code_of(wait_status) - 128;
    log::info("rank {} exited on {}, as requested", child.rank, signal_name(interrupted_by_));
    enter(Phase::kTerminating, Patience::kPreempt);
  }
  ChildEnd end{child.rank, child.pid, wait_status, child.asked};
  const std::shared_ptr<Coordinator> coordinator = hosting_.coordinator();
  if (coordinator && !elastic()) end.role = coordinator->role(child.rank);
  end.forgiven = forgiven(child, wait_status);
  bool again = starts_again(child, wait_status);
  if (again) to_revive_.emplace_back(child.rank - first_rank(work_.options), child.life + 1);
  if (end.forgiven)
    log::warn("rank {} (pid {}) {}; {}", end.rank, end.pid, describe_status(wait_status),
              again ? "it is restarted" : "the others continue without it");
  ends_.push_back(end);
  if (end.forgiven && elastic()) {
    report(report_of(end, work_.host));
    return;
  }
  if (end.good()) {
    if (coordinator) coordinator->left(child.rank);
    return;
  }
  if (end.asked) return;
  // A victim only repeats what the coordinator reported, or will notice itself.
  if (!is_victim(end)) report(report_of(end, work_.host));
  wind_down();
}

void Attempt::report(const FailureReport& report) const {
  if (const std::shared_ptr<Coordinator> coordinator = hosting_.coordinator())
    coordinator->report(report);
  else
    tell_coordinator(place_, report);
}

bool Attempt::expendable(int rank) const {
  auto index = static_cast<size_t>(rank);
  if (elastic() || !work_.options.expendable.empty())
    return elastic() || (index < work_.options.expendable.size() && work_.options.expendable[index]);
  // What the program is, its own ranks have told the coordinator.
  const std::shared_ptr<Coordinator> coordinator = hosting_.coordinator();
  return coordinator ? coordinator->expendable(rank) : ask_whether_expendable(place_, rank);
}

namespace {

bool was_ended_by_others(int wait_status) {
  if (!WIFSIGNALED(wait_status)) return false;
  int signal = WTERMSIG(wait_status);
  return signal == SIGKILL || signal == SIGTERM || signal == SIGINT || signal == SIGHUP;
}

}  // namespace

// A crash indicates a defect that the other ranks have too: it fails the job. A restarted rank that no longer
// found the others has not failed: they had ended.
bool Attempt::forgiven(const Child& child, int wait_status) const {
  int code = exit_code_of(wait_status);
  if (elastic() && child.life > 0 && code == static_cast<int>(ExitCode::kRendezvous)) return true;
  // Evicted: whatever the job ends with, it had no part in it.
  const std::shared_ptr<Coordinator> coordinator = hosting_.coordinator();
  const bool outside = coordinator && !coordinator->has_joined(child.rank);
  if (elastic() && outside && code == static_cast<int>(ExitCode::kPeerFailed)) return true;
  if (!elastic() && code == static_cast<int>(ExitCode::kPeerFailed) && was_evicted(child.rank)) return true;
  if (child.asked || phase_ != Phase::kRunning) return false;
  // The others have the same configuration; and once the job has failed they all end.
  if (elastic())
    return wait_status != 0 && code != static_cast<int>(ExitCode::kUsage) &&
           (!coordinator || !coordinator->failure());
  bool came_too_late = child.life > 0 && (code == static_cast<int>(ExitCode::kPeerFailed) ||
                                          code == static_cast<int>(ExitCode::kRendezvous));
  return (was_ended_by_others(wait_status) || (wait_status != 0 && came_too_late)) && expendable(child.rank);
}

bool Attempt::was_evicted(int rank) const {
  const std::shared_ptr<Coordinator> coordinator = hosting_.coordinator();
  return coordinator ? coordinator->is_evicted(rank) : is_evicted(place_, rank);
}

bool Attempt::starts_again(const Child& child, int wait_status) const {
  if (!forgiven(child, wait_status) || (!WIFSIGNALED(wait_status) && !elastic())) return false;
  if (elastic())  // somebody has to have the state that it needs
    return child.life < work_.options.rank_restarts &&
           std::any_of(children_.begin(), children_.end(), [](const Child& other) { return other.running; });
  if (work_.options.restartable >= 0 && child.rank >= work_.options.restartable) return false;
  bool job_runs = std::all_of(children_.begin(), children_.end(),
                              [&](const Child& other) { return other.running || expendable(other.rank); });
  return job_runs && child.life < work_.options.rank_restarts;
}

// Deferred, because start() modifies the list of children.
void Attempt::revive() {
  for (auto [local_rank, life] : std::exchange(to_revive_, {})) start(local_rank, life);
}

void Attempt::look_at_coordinator() {
  const std::shared_ptr<Coordinator> coordinator = hosting_.coordinator();
  if (!coordinator) return;
  known_ = coordinator->failure();
  if (known_ && interrupted_by_ == 0) wind_down();
}

const FailureReport* Attempt::known() const {
  return known_.get();
}

void Attempt::wind_down() {
  if (phase_ != Phase::kRunning) return;
  enter(Phase::kWinding, Patience::kOwnEnd);
  deaf_end_ = Deadline::after(Patience::kDeaf);
}

// A stopped process (SIGSTOP) receives neither the failure nor a signal: it gets no grace period.
void Attempt::kill_stopped() {
  for (Child& child : children_) {
    if (!child.running || !is_stopped(child.pid)) continue;
    child.asked = true;
    ::kill(-child.pid, SIGKILL);
  }
}

// SIGCHLD also signals stops.
void Attempt::note_stops() {
  for (Child& child : children_) {
    if (!child.running || !is_stopped(child.pid))
      child.stopped.reset();
    else if (!child.stopped)
      child.stopped = Deadline::after(Patience::kStopped);
  }
}

// The coordinator detects a stopped rank by missing heartbeats, but not one that has left the job and only
// has to exit. A launcher on another machine learns the end of the job from its ranks, and a stopped one
// cannot report it. An elastic job goes on without the stopped rank, which its own launcher has to end.
void Attempt::look_at_stopped() {
  if (phase_ != Phase::kRunning || (next_question_ && !next_question_->passed())) return;
  for (const Child& child : children_) {
    if (!child.stopped || !child.running || !is_stopped(child.pid)) continue;
    next_question_ = Deadline::after(Patience::kAsk);
    const std::shared_ptr<Coordinator> coordinator = hosting_.coordinator();
    if (elastic()) {
      if (!child.stopped->passed()) continue;
      if (coordinator)
        coordinator->report(stop_report({child.rank, child.pid, 0, false, false, ""}, work_.host));
      ::kill(-child.pid,
             SIGKILL);  // evicted: it cannot return to its epoch, but may hold the lock of out.dir
    } else if (!coordinator) {
      std::optional<FailureReport> failure = ask_coordinator(place_, work_.options.world_size());
      if (failure) known_ = std::make_shared<FailureReport>(*failure);
      if (failure) return wind_down();
      if (was_evicted(child.rank)) ::kill(-child.pid, SIGKILL);
    } else if (child.stopped->passed() && coordinator->has_joined(child.rank) &&
               !coordinator->is_replaceable(child.rank)) {
      coordinator->report(
          stop_report({child.rank, child.pid, 0, false, false, coordinator->role(child.rank)}, work_.host));
    }
  }
}

void Attempt::end_evicted() {
  const std::shared_ptr<Coordinator> coordinator = hosting_.coordinator();
  if (!coordinator || elastic() || phase_ != Phase::kRunning) return;
  for (const Child& child : children_)
    if (child.running && coordinator->is_evicted(child.rank)) ::kill(-child.pid, SIGKILL);
}

void Attempt::check_time() {
  if (phase_ != Phase::kRunning && interrupted_by_ == 0) kill_stopped();
  if (deaf_end_ && deaf_end_->passed()) {
    deaf_end_.reset();
    send(SIGTERM, /*only_missing=*/true);
  }
  if (!phase_end_ || !phase_end_->passed()) return;
  if (phase_ == Phase::kWinding) {
    send(SIGTERM);
    return enter(Phase::kTerminating, Patience::kTerminate);
  }
  if (phase_ == Phase::kTerminating && interrupted_by_ != 0)
    log::warn("ranks did not exit after {}: killing them", signal_name(interrupted_by_));
  if (++kills_ > Patience::kKills) return give_up();
  send(SIGKILL);
  enter(Phase::kKilling, Patience::kTerminate);
}

void Attempt::give_up() {
  for (Child& child : children_) {
    if (!child.running) continue;
    log::error(
        "rank {} (pid {}) does not exit although it was killed: it is stuck in the kernel (disk, driver)",
        child.rank, child.pid);
    child.running = false;
    child.drain = Deadline::after(0);
    ends_.push_back({child.rank, child.pid, SIGKILL, /*asked=*/true});
  }
}

void Attempt::enter(Phase phase, double seconds) {
  phase_ = phase;
  phase_end_ = Deadline::after(seconds);
}

void Attempt::send(int signal, bool only_missing) {
  std::vector<int> missing;
  const std::shared_ptr<Coordinator> coordinator = only_missing ? hosting_.coordinator() : nullptr;
  if (coordinator) missing = coordinator->missing();
  for (Child& child : children_) {
    if (!child.running) continue;
    if (only_missing && std::find(missing.begin(), missing.end(), child.rank) == missing.end()) continue;
    if (signal != SIGUSR1 && signal != SIGUSR2 && signal != SIGXCPU) child.asked = true;
    ::kill(-child.pid, signal);
  }
}

std::deque<std::string> Attempt::last_lines(int rank) const {
  auto last = std::find_if(children_.rbegin(), children_.rend(),
                           [&](const Child& child) { return child.rank == rank; });
  return last == children_.rend() ? std::deque<std::string>() : last->output->err.tail();
}

}  // namespace yoke::cluster
