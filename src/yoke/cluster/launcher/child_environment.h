// The environment variables of a rank.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "yoke/cluster/launcher/launcher.h"
#include "yoke/net/connection.h"

namespace yoke::cluster {

struct JobPlace {
  std::string endpoint;     // of the coordinator, as seen by the ranks
  std::string master_addr;  // for programs that use other libraries
  int master_port = 0;
  net::JobTicket ticket;
};

// Our variables, torchrun's (for programs that use other libraries), and thread counts that avoid
// oversubscription. `inherited`: the launcher's own environment; user settings of OMP_NUM_THREADS and similar
// are kept.
std::vector<std::string> rank_environment(const LaunchOptions& options, const JobPlace& place, int local_rank,
                                          std::map<std::string, std::string> inherited, int cores);

// Global rank of the first rank on this machine.
int first_rank(const LaunchOptions& options);

// Cores available to this process.
int usable_cores();

// GPUs of this machine, restricted by CUDA_VISIBLE_DEVICES.
int visible_gpus();

}  // namespace yoke::cluster
