// The flags of `yoke run`: torchrun's names and meaning, and a few of mpirun's.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace yoke::cli {

// As typed; empty: not given.
struct RunFlags {
  std::string nnodes;
  std::string nproc;
  std::string node_rank;
  std::string endpoint;
  std::string id;
  std::string local_addr;
  std::string backend;
  std::string conf;
  std::string max_restarts;
  std::string monitor_interval;
  std::string tee;
  std::string redirects;
  std::string log_dir;
  std::string local_ranks_filter;
  std::string master_addr;
  std::string master_port;
  std::string role;
  std::string hosts;
  std::string hostfile;
  std::string secret_file;
  std::string join_timeout;
  bool elastic = false;
  bool join = false;
  bool requeue = false;
  bool standalone = false;
  bool no_python = false;
  bool insecure = false;
  bool encrypt = false;
  bool json = false;
  bool quiet = false;
  bool help = false;
  std::vector<std::string> program;  // and its arguments, unmodified
  std::vector<std::string> typed;    // the words before it, except those that identify this machine
};

// Parses flags up to the first other word: the program. `variable` reads the environment: PET_NNODES and
// similar are the defaults of flags. Throws ConfigError.
RunFlags parse_run_flags(const std::vector<std::string>& words,
                         const std::function<std::optional<std::string>(const std::string&)>& variable);

// One screen with every flag.
std::string run_help();

}  // namespace yoke::cli
