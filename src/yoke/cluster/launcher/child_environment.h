// What a rank finds in its environment.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "yoke/cluster/launcher/launcher.h"
#include "yoke/net/connection.h"

namespace yoke::cluster {

struct JobPlace {
  std::string endpoint;     // of the coordinator, as ranks reach it
  std::string master_addr;  // for programs of other libraries
  int master_port = 0;
  net::JobTicket ticket;
};

// Our variables, torchrun's (so that programs of other libraries find what they know), and thread counts
// that keep ranks from fighting for cores. `inherited` is the launcher's own environment; what the user has
// set for OMP_NUM_THREADS and its like stays.
std::vector<std::string> rank_environment(const LaunchOptions& options, const JobPlace& place, int local_rank,
                                          std::map<std::string, std::string> inherited, int cores);

// Ranks before this machine's first one.
int first_rank(const LaunchOptions& options);

// Cores this process may use.
int usable_cores();

// GPUs of this machine that CUDA_VISIBLE_DEVICES leaves.
int visible_gpus();

}  // namespace yoke::cluster
