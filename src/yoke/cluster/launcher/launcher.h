// Starts the ranks of a job on this machine, monitors them, and reports the cause of a failure.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "yoke/cluster/failure.h"

namespace yoke::cluster {

// Bits for --tee and --redirects.
enum Streams : int { kNoStream = 0, kStdout = 1, kStderr = 2, kBothStreams = 3 };

struct LaunchOptions {
  std::vector<std::string> program;   // name (searched in PATH) and arguments
  std::vector<int> node_sizes = {1};  // ranks on each machine
  int node_rank = 0;                  // index of this machine
  std::string endpoint;               // host:port of the coordinator; empty: one machine, a unix socket
  std::string etcd{};        // HOST:PORT,…: the coordinator is elected through it; no endpoint then
  std::string local_addr{};  // of this machine, where an elected coordinator listens; empty: found
  std::string job_id;        // identical on all machines; empty: generated
  int max_restarts = 0;
  // Whether the job restarts after this failure; empty: after any.
  std::function<bool(const FailureReport&)> restarts_after{};
  double join_timeout = 60;       // seconds for all ranks to join
  double monitor_interval = 0.1;  // seconds between checks of the coordinator

  std::string secret_file;  // required across machines
  bool insecure = false;    // no authentication; logs a warning
  bool encrypt = false;

  // MASTER_ADDR and MASTER_PORT for programs that use other libraries. Empty and 0: derived from the
  // endpoint.
  std::string master_addr;
  int master_port = 0;
  std::string role = "default";

  std::string log_dir;           // empty: a temporary folder, if files are needed
  std::map<int, int> tee;        // Streams by local rank, -1 for all: to console and file
  std::map<int, int> redirects;  // likewise: to file only
  std::vector<int> shown_ranks;  // local ranks whose output is shown; empty: all

  // Rank 0 owns stdout: its stdout is passed through unchanged and its stderr has no prefix; stdout of other
  // ranks goes to stderr. For commands that launch themselves (`yoke train --nproc`).
  bool rank0_speaks = false;
  // A program that behaves like `program` and calls serve_as_zygote(): if there are several ranks on this
  // machine, they are forked from it. Empty: every rank is started by itself.
  std::string zygote{};
  // By rank; empty: none. The job continues if such a rank is killed by a signal.
  std::vector<bool> expendable{};
  int late_ranks = 0;  // that may join while the job runs, as in CoordinatorOptions
  // The command as typed, for the records of ranks; empty: that of the ranks.
  std::string typed{};
  // Fewest ranks of an elastic job: it continues without ranks that fail. 0: not elastic.
  int elastic_min = 0;
  int rank_restarts = 0;          // how often such a rank is restarted into the running job
  int restartable = -1;           // only ranks below this; -1: all
  bool stdout_is_taken = false;   // stdout of ranks goes to stderr (--json)
  bool stdout_is_hidden = false;  // stdout of ranks is discarded
  // Under Slurm: the job is requeued if it stops on a signal that announces its end (launcher/requeue.h).
  bool requeue = false;

  // Where other programs find this job while it runs (cluster/job_contact.h); empty: they do not. One machine
  // only.
  std::string contact_file{};

  int world_size() const;
  int local_size() const;
};

struct LaunchResult {
  int exit_code = 0;  // of the culprit; 128 + n for signals
  int restarts = 0;
  bool requeued = false;
  double seconds = 0;
  std::optional<FailureReport> failure;
  std::string error;  // what the culprit's last "error: " line on stderr says; empty: it wrote none
};

// Runs the job to its end. Throws ConfigError before anything is started (program not found or not
// executable, invalid options) and at the end if the job could not be requeued, and Error with kRendezvous if
// the endpoint cannot be opened. A failed job ends with one box on stderr. Call it from the main thread, one
// job at a time; signals received meanwhile (INT, TERM, HUP, QUIT, USR1, USR2, XCPU) are forwarded to the
// ranks. After USR1, USR2 and XCPU the job continues unless a rank exits with 128 + n or is killed by the
// signal.
LaunchResult launch(const LaunchOptions& options);

// launch() for commands: returns the exit code.
int run_job(const LaunchOptions& options);

// A job of `nproc` ranks of this program on this machine, for `yoke train --nproc N`. `words`: the arguments
// after the program's name, without --nproc.
LaunchOptions own_job(int nproc, const std::vector<std::string>& words);

}  // namespace yoke::cluster
