// Starts the ranks of a job on this machine, watches them, and says why it failed when it did.
#pragma once

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
  int node_rank = 0;                  // which of them this is
  std::string endpoint;               // host:port of the coordinator; empty: one machine, a unix name
  std::string job_id;                 // the same on all machines; empty: chosen
  int max_restarts = 0;
  double join_timeout = 60;       // seconds for all ranks to come
  double monitor_interval = 0.1;  // seconds between looks at what the coordinator knows

  std::string secret_file;  // across machines
  bool insecure = false;    // no proof of the key; warns
  bool encrypt = false;

  // For programs of other libraries: MASTER_ADDR and MASTER_PORT. Empty and 0: derived from the endpoint.
  std::string master_addr;
  int master_port = 0;
  std::string role = "default";

  std::string log_dir;     // empty: a folder below the system's temporary one, where files are asked for
  std::map<int, int> tee;  // Streams by local rank, -1 for all: to console and file
  std::map<int, int> redirects;  // likewise: to file only
  std::vector<int> shown_ranks;  // local ranks whose output is shown; empty: all

  // Rank 0's stdout is the job's stdout, untouched, and its stderr has no prefix; what others print on stdout
  // goes to stderr. For commands that start themselves (`yoke train --nproc`).
  bool rank0_speaks = false;
  // By rank; empty: none. The job goes on when such a rank is killed by a signal.
  std::vector<bool> expendable{};
  // By rank; empty: none. What a rank is, for errors: "parameter server 1".
  std::vector<std::string> roles{};
  // The command as it was typed, for the records of ranks; empty: what they were started with.
  std::string typed{};
  int rank_restarts = 0;         // so often is such a rank started again, into the running job
  bool stdout_is_taken = false;  // what ranks print on stdout goes to stderr (--json)

  int world_size() const;
  int local_size() const;
};

struct LaunchResult {
  int exit_code = 0;  // the culprit's; 128 + n for signals
  int restarts = 0;
  double seconds = 0;
  std::optional<FailureReport> failure;
};

// Runs the job to its end. Throws ConfigError before anything is started when it cannot be (program not found
// or not executable, impossible options), and Error with kRendezvous when the endpoint cannot be opened. A
// failed job ends with one box on stderr. Must be called from the main thread, once at a time; signals that
// arrive meanwhile (INT, TERM, HUP, QUIT, USR1, USR2) go to the ranks.
LaunchResult launch(const LaunchOptions& options);

// launch(), for commands: the exit code.
int run_job(const LaunchOptions& options);

// The job of `nproc` ranks of this program on this machine, for `yoke train --nproc N`: `words` are the
// arguments after the program's name, without --nproc.
LaunchOptions own_job(int nproc, const std::vector<std::string>& words);

}  // namespace yoke::cluster
