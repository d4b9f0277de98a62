#include "yoke/cluster/launcher/launcher.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>
#include <optional>
#include <thread>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/log.h"
#include "yoke/cluster/identity_sources.h"
#include "yoke/cluster/job_contact.h"
#include "yoke/cluster/launch_env.h"
#include "yoke/cluster/launcher/attempt.h"
#include "yoke/cluster/launcher/box.h"
#include "yoke/cluster/launcher/child.h"
#include "yoke/cluster/launcher/hosting.h"
#include "yoke/cluster/launcher/requeue.h"
#include "yoke/cluster/whereabouts.h"

namespace yoke::cluster {
namespace {

// A port that is free now, for programs that open MASTER_PORT themselves.
int free_port() {
  net::Descriptor socket = net::listen_at(net::Address{"127.0.0.1", 0, ""});
  return net::bound_address(socket.get()).port;
}

void check(const LaunchOptions& options) {
  YOKE_CHECK(options.node_rank >= 0 && options.node_rank < static_cast<int>(options.node_sizes.size()),
             "machine {} of {}", options.node_rank, options.node_sizes.size());
  bool several = options.node_sizes.size() > 1;
  if (several && options.endpoint.empty() && options.etcd.empty())
    throw ConfigError(
        "--nnodes {}: several machines need a rendezvous address. Add --rdzv-endpoint HOST:PORT, an address "
        "of machine 0.",
        options.node_sizes.size());
  if (several && options.secret_file.empty() && !options.insecure)
    throw ConfigError(
        "--nnodes {}: connections between machines need a key. Add --secret-file FILE, the same file on all "
        "machines (`head -c 32 /dev/urandom > FILE && chmod 600 FILE`), or --insecure on a trusted network.",
        options.node_sizes.size());
}

JobPlace make_place(const LaunchOptions& options) {
  JobPlace place;
  place.ticket = make_ticket(options);
  place.endpoint = options.etcd.empty() ? options.endpoint : kEtcdPrefix + options.etcd;
  place.master_addr = options.master_addr.empty() ? "127.0.0.1" : options.master_addr;
  place.master_port = options.master_port;
  if (options.endpoint.empty()) {
    if (place.master_port == 0) place.master_port = free_port();
    return place;
  }
  net::Address address = net::parse_address(options.endpoint);
  if (options.master_addr.empty() && !address.is_unix()) place.master_addr = address.host;
  if (place.master_port == 0 && address.port == 0) place.master_port = free_port();
  if (place.master_port == 0) place.master_port = address.port < 65535 ? address.port + 1 : address.port - 1;
  return place;
}

// Runs the attempts of a job, one after the other.
class Job {
 public:
  explicit Job(const LaunchOptions& options)
      : options_(options), program_(find_program(options.program.front())), host_(net::host_name()) {
    check(options);
    if (options.requeue) slurm_ = find_slurm_job(environment_variable);
    place_ = make_place(options);
    folder_ = log_folder();
  }

  LaunchResult run() {
    Stopwatch watch;
    LaunchResult result;
    for (;; ++result.restarts) {
      place_.ticket.generation = static_cast<uint32_t>(result.restarts);
      arm_faults(/*rank=*/-1, result.restarts);
      bool interrupted = attempt(result);
      result.seconds = watch.seconds();
      if (result.exit_code == 0 || interrupted || !may_restart(result)) break;
      log::warn("{}. Restarting all ranks ({} of {}).", result.failure->what, result.restarts + 1,
                options_.max_restarts);
    }
    return result;
  }

 private:
  bool may_restart(const LaunchResult& result) const {
    return result.restarts < options_.max_restarts && result.failure &&
           (!options_.restarts_after || options_.restarts_after(*result.failure));
  }

  // Returns whether the user ended it.
  bool attempt(LaunchResult& result) {
    Stopwatch watch;
    std::unique_ptr<Hosting> hosting =
        options_.etcd.empty() ? host_on_first_machine(options_, place_) : host_if_elected(options_, place_);
    if (!hosting->coordinator() && result.restarts > 0) wait_for_next_generation();
    std::optional<JobBeacon> beacon;
    if (hosting->coordinator() && !options_.contact_file.empty())
      beacon.emplace(
          options_.contact_file,
          JobAddress{place_.endpoint, place_.ticket.job_id, static_cast<int>(place_.ticket.generation),
                     net::to_string(place_.ticket.protection)},
          place_.ticket.secret);
    Workplace work{options_, guardian_, orphans_, signals_, console_, program_, host_};
    std::filesystem::path folder = folder_;
    if (!folder.empty()) folder /= fmt::format("attempt_{}", result.restarts);
    Attempt attempt(work, place_, *hosting, folder);
    Verdict verdict = attempt.run();
    result.exit_code = verdict.exit_code;
    result.failure = verdict.failure;
    result.error = result.failure ? error_of(attempt.last_lines(result.failure->rank)) : "";
    int signal = attempt.interrupted_by();
    write_out(/*hurried=*/signal != 0);
    if (signal == 0) stay_for_others(*hosting, result);
    if (signal == SIGPIPE) result.exit_code = 128 + SIGPIPE;
    const bool left = signal != 0 && result.exit_code == 0 && options_.elastic_min > 0;
    if (left && options_.node_sizes.size() > 1) tell_how_to_return(*hosting);
    if (slurm_ && announces_the_end(signal)) requeue_if_stopped(*hosting, result, signal, left);
    bool last = signal != 0 || !may_restart(result);
    if (result.failure && signal == 0 && last) tell(attempt, result, watch.seconds(), folder);
    return signal != 0;
  }

  // Preempted: the job goes on elsewhere.
  void tell_how_to_return(const Hosting& hosting) const {
    const std::optional<std::string> slurm = environment_variable("SLURM_JOB_ID");
    log::info(
        "the ranks of this machine have left the job. Next: run the same command again to take part again{}",
        slurm ? fmt::format(" (scontrol requeue {})", *slurm) : "");
    if (options_.etcd.empty() && hosting.coordinator())
      log::warn(
          "this launcher hosted the coordinator: the others wait {:.0f} s for it (--join-timeout). "
          "--rdzv-backend etcd elects another",
          options_.join_timeout);
  }

  // Ranks of other machines are given a moment to end: Slurm kills what still runs when it requeues the job.
  void requeue_if_stopped(const Hosting& hosting, LaunchResult& result, int signal, bool left) {
    constexpr double kForOthers = 2;
    if (!slurm_->first || !(left || result.exit_code == 128 + signal)) return;
    if (left && !slurm_->whole)
      return log::info("Slurm job {} is not requeued: its other machines continue", slurm_->id);
    if (std::shared_ptr<Coordinator> coordinator = hosting.coordinator(); coordinator && !left)
      coordinator->wait_until_empty(Deadline::after(kForOthers));
    requeue(*slurm_, signals_.previous_mask(), guardian_);
    result.requeued = true;
  }

  // Like any program we wait for the reader of our output, unless the user interrupts.
  void write_out(bool hurried) {
    constexpr double kTick = 0.1;
    if (hurried) return console_.flush(Deadline::after(Patience::kTerminate));
    while (!console_.empty()) {
      console_.flush(Deadline::after(kTick));
      for (int signal : signals_.read()) {
        if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP) return;
      }
    }
  }

  // Ranks of other machines may still need the coordinator; after a failure they only have to learn of it.
  // The coordinator detects ranks that vanish, so this ends. An elastic job has not failed while others run.
  void stay_for_others(const Hosting& hosting, LaunchResult& result) {
    constexpr double kAfterFailure = 2;
    constexpr double kTick = 0.05;
    if (options_.node_sizes.size() == 1) return;
    Stopwatch watch;
    const bool elastic = options_.elastic_min > 0;
    while (std::shared_ptr<Coordinator> coordinator = hosting.coordinator()) {
      const bool empty = coordinator->wait_until_empty(Deadline::after(kTick));
      const bool failed = result.exit_code != 0 && (!elastic || coordinator->failure());
      if (empty && elastic && coordinator->finished()) {
        result.exit_code = 0;
        result.failure.reset();
      }
      if (empty || (failed && watch.seconds() > kAfterFailure)) return;
      for (int signal : signals_.read()) {
        if (signal != SIGCHLD) return;
      }
    }
  }

  // Machine 0 may still be finishing the last attempt; ranks that connect too early are refused.
  void wait_for_next_generation() {
    Deadline deadline = Deadline::after(options_.join_timeout);
    net::Address address = net::parse_address(options_.endpoint);
    net::Introduction self;
    self.purpose = "control";
    while (!deadline.passed()) {
      try {
        net::introduce(net::connect_to(address, deadline), place_.ticket, self, deadline.sooner(2));
        return;
      } catch (const Error&) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
    }
    throw Error(ExitCode::kRendezvous,
                fmt::format("{}: no coordinator for restart {} within {:.0f} s. Is the launcher of machine 0 "
                            "still running, with the same --max-restarts?",
                            options_.endpoint, place_.ticket.generation, options_.join_timeout));
  }

  void tell(const Attempt& attempt, const LaunchResult& result, double seconds,
            const std::filesystem::path& folder) {
    BoxContent content{*result.failure, result.exit_code, seconds, result.restarts, {}, ""};
    content.last_lines = attempt.last_lines(result.failure->rank);
    if (!folder.empty()) content.log_folder = (folder / std::to_string(result.failure->rank)).string();
    if (!has_said_all(content)) console_.write(STDERR_FILENO, draw_box(content, stderr_shows_utf8()));
    write_out(/*hurried=*/false);
    if (std::optional<std::string> file = environment_variable("TORCHELASTIC_ERROR_FILE"))
      write_file_atomically(*file, error_file_text(*result.failure, wall_seconds()));
  }

  static std::string error_of(const std::deque<std::string>& lines) {
    constexpr std::string_view kError = "error: ";
    for (auto line = lines.rbegin(); line != lines.rend(); ++line)
      if (line->starts_with(kError)) return line->substr(kError.size());
    return "";
  }

  // A command of ours with invalid arguments has already printed an error.
  bool has_said_all(const BoxContent& content) const {
    bool usage = content.exit_code == static_cast<int>(ExitCode::kUsage);
    return options_.rank0_speaks && usage && !error_of(content.last_lines).empty();
  }

  std::filesystem::path log_folder() const {
    if (options_.tee.empty() && options_.redirects.empty()) return {};
    std::filesystem::path base = options_.log_dir;
    if (base.empty()) {
      base = std::filesystem::temp_directory_path() / ("yoke-" + random_name());
      log::info("output is written to {}", base.string());
    }
    return base / place_.ticket.job_id;
  }

  const LaunchOptions& options_;
  std::string program_;
  std::string host_;
  SignalReader signals_;  // before any thread is created: threads inherit the signal mask
  Guardian guardian_;
  Orphans orphans_;  // after the guardian, which is not an orphan
  Console console_;
  JobPlace place_;
  std::optional<SlurmJob> slurm_;  // with --requeue
  std::filesystem::path folder_;
};

}  // namespace

int LaunchOptions::world_size() const {
  return std::accumulate(node_sizes.begin(), node_sizes.end(), 0);
}

int LaunchOptions::local_size() const {
  return node_sizes[static_cast<size_t>(node_rank)];
}

LaunchResult launch(const LaunchOptions& options) {
  YOKE_CHECK(!options.program.empty(), "no program");
  return Job(options).run();
}

int run_job(const LaunchOptions& options) {
  return launch(options).exit_code;
}

LaunchOptions own_job(int nproc, const std::vector<std::string>& words) {
  LaunchOptions options;
  options.program = {std::filesystem::read_symlink("/proc/self/exe").string()};
  options.program.insert(options.program.end(), words.begin(), words.end());
  options.node_sizes = {nproc};
  options.rank0_speaks = true;
  return options;
}

}  // namespace yoke::cluster
