// Who this process is among the others, told by the environment of any launcher.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace yoke::cluster {

// One variable that was looked at.
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
  int node_rank = 0;               // where the launcher does not tell: rank / local_world_size
  std::string endpoint;            // of the coordinator; empty for a world of one
  std::string job_id;              // the same on all ranks of this job, and on no other's
  int generation = 0;              // restart count
  bool hosts_coordinator = false;  // rank 0 under a launcher that is not ours
  std::string error_file;          // torchrun's, where a fatal error is written
  std::vector<SeenVariable> variables;
};

// Reads one variable; a test hands in a table.
using Lookup = std::function<std::optional<std::string>(const std::string& name)>;

// Precedence: YOKE_* (own launcher), torchrun/Kubeflow, Open MPI, MPICH, other PMIx, Slurm, Kubernetes
// Indexed Job, none. Throws ConfigError: two sources that disagree (prints both), numbers out of range, a
// missing partner variable, sbatch without srun.
Identity identify(const Lookup& lookup);

// identify() of this process's environment (launch_env.cpp is the only file that reads it).
Identity identify_from_environment();

// "gnode[10,20-22],x1" -> names. "4(x2),3" -> {4, 4, 3}. Throw ConfigError; at most 100 000 names.
std::vector<std::string> expand_nodelist(const std::string& text);
std::vector<int> expand_tasks_per_node(const std::string& text);

}  // namespace yoke::cluster
