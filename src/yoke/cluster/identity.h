// Rank, world size and rendezvous of this process, from the environment of any launcher.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace yoke::cluster {

// An environment variable that was examined.
struct SeenVariable {
  std::string name;
  std::string value;  // secrets are shown as "(hidden)"
  bool used = false;
  std::string why;  // "rank", "ignored: torchrun's RANK comes first", …
};

inline constexpr int kMaxWorldSize = 1'000'000;

struct Identity {
  std::string source = "none";  // yoke, torchrun, openmpi, mpich, pmix, slurm, kubernetes, none
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  int node_rank = 0;               // if the launcher does not set it: rank / local_world_size
  std::string endpoint;            // of the coordinator; empty for a world of one
  std::string job_id;              // identical on all ranks of this job, unique among jobs
  int generation = 0;              // restart count
  bool hosts_coordinator = false;  // rank 0 under a launcher other than `yoke run`
  std::string error_file;          // torchrun's file for fatal errors
  std::vector<SeenVariable> variables;
};

// Reads one variable; tests pass a table.
using Lookup = std::function<std::optional<std::string>(const std::string& name)>;

// Precedence: YOKE_* (own launcher), torchrun/Kubeflow, Open MPI, MPICH, other PMIx, Slurm, Kubernetes
// Indexed Job, none. Throws ConfigError: two sources disagree (shows both), numbers out of range, a required
// variable is missing, sbatch without srun.
Identity identify(const Lookup& lookup);

// identify() with the environment of this process (launch_env.cpp is the only file that reads it).
Identity identify_from_environment();

// "gnode[10,20-22],x1" -> names; "4(x2),3" -> {4, 4, 3}. Throw ConfigError; at most 100 000 entries.
std::vector<std::string> expand_nodelist(const std::string& text);
std::vector<int> expand_tasks_per_node(const std::string& text);

}  // namespace yoke::cluster
