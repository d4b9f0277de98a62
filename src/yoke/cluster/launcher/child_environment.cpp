#include "yoke/cluster/launcher/child_environment.h"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "yoke/base/text.h"
#include "yoke/cluster/launch_env.h"

namespace yoke::cluster {
namespace {

using Table = std::map<std::string, std::string>;

void set_ours(Table& table, const LaunchOptions& options, const JobPlace& place, int rank, int local_rank) {
  table["YOKE_RANK"] = std::to_string(rank);
  table["YOKE_WORLD_SIZE"] = std::to_string(options.world_size());
  table["YOKE_LOCAL_RANK"] = std::to_string(local_rank);
  table["YOKE_LOCAL_WORLD_SIZE"] = std::to_string(options.local_size());
  table["YOKE_NODE_RANK"] = std::to_string(options.node_rank);
  table["YOKE_COORDINATOR"] = place.endpoint;
  table["YOKE_JOB_ID"] = place.ticket.job_id;
  table["YOKE_GENERATION"] = std::to_string(place.ticket.generation);
  table["YOKE_JOB_KEY"] = place.ticket.secret.to_text();
  table.erase("YOKE_SECRET_FILE");  // YOKE_JOB_KEY takes precedence, as in the coordinator
  table["YOKE_PROTECTION"] = net::to_string(place.ticket.protection);
  table.erase("YOKE_COMMAND");
  if (!options.typed.empty()) table["YOKE_COMMAND"] = options.typed;
  if (options.elastic_min > 0) {
    table["YOKE_ELASTIC__ENABLED"] = "true";
    table["YOKE_ELASTIC__MIN"] = std::to_string(options.elastic_min);
  }
  table["YOKE_JOIN_TIMEOUT"] = fmt::format("{}", options.join_timeout);
  // Created by ranks that fail only.
  std::filesystem::path logs = options.log_dir.empty() ? std::filesystem::temp_directory_path()
                                                       : std::filesystem::path(options.log_dir);
  std::string id = place.ticket.job_id;
  std::replace(id.begin(), id.end(), '/', '_');
  table.emplace("YOKE_FLIGHT_DIR", (std::filesystem::absolute(logs) / ("flight-" + id)).string());
}

void set_torchrun(Table& table, const LaunchOptions& options, const JobPlace& place, int rank,
                  int local_rank) {
  table["RANK"] = std::to_string(rank);
  table["WORLD_SIZE"] = std::to_string(options.world_size());
  table["LOCAL_RANK"] = std::to_string(local_rank);
  table["LOCAL_WORLD_SIZE"] = std::to_string(options.local_size());
  table["GROUP_RANK"] = std::to_string(options.node_rank);
  table["GROUP_WORLD_SIZE"] = std::to_string(options.node_sizes.size());
  table["ROLE_NAME"] = options.role;
  table["ROLE_RANK"] = std::to_string(rank);
  table["ROLE_WORLD_SIZE"] = std::to_string(options.world_size());
  table["MASTER_ADDR"] = place.master_addr;
  table["MASTER_PORT"] = std::to_string(place.master_port);
  table["TORCHELASTIC_RUN_ID"] = place.ticket.job_id;
  table["TORCHELASTIC_RESTART_COUNT"] = std::to_string(place.ticket.generation);
  table["TORCHELASTIC_MAX_RESTARTS"] = std::to_string(options.max_restarts);
  table["TORCHELASTIC_USE_AGENT_STORE"] = "False";  // rank 0 opens MASTER_PORT itself
  table.erase("TORCHELASTIC_ERROR_FILE");           // the launcher writes it, once
}

void set_threads(Table& table, int cores, int ranks) {
  std::string threads = std::to_string(std::max(1, cores / ranks));
  for (const char* name : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"})
    table.emplace(name, threads);
}

}  // namespace

std::vector<std::string> rank_environment(const LaunchOptions& options, const JobPlace& place, int local_rank,
                                          Table inherited, int cores) {
  int rank = first_rank(options) + local_rank;
  set_ours(inherited, options, place, rank, local_rank);
  set_torchrun(inherited, options, place, rank, local_rank);
  set_threads(inherited, cores, options.local_size());
  std::vector<std::string> result;
  for (const auto& [name, value] : inherited) result.push_back(name + "=" + value);
  return result;
}

int first_rank(const LaunchOptions& options) {
  return std::accumulate(options.node_sizes.begin(), options.node_sizes.begin() + options.node_rank, 0);
}

int usable_cores() {
  cpu_set_t set;
  int cores = ::sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
  // A container sees all cores but may have a CPU quota: "200000 100000" means two cores.
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  double quota = 0;
  double period = 0;
  if (file >> quota >> period && quota > 0 && period > 0)
    cores = std::clamp(static_cast<int>(std::ceil(quota / period)), 1, cores);
  return cores;
}

int visible_gpus() {
  int found = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/dev", error)) {
    std::string name = entry.path().filename();
    bool numbered = name.rfind("nvidia", 0) == 0 && name.size() > 6 &&
                    name.find_first_not_of("0123456789", 6) == std::string::npos;
    if (numbered) ++found;
  }
  std::optional<std::string> visible = environment_variable("CUDA_VISIBLE_DEVICES");
  return visible ? std::min(found, static_cast<int>(split(*visible, ',').size())) : found;
}

}  // namespace yoke::cluster
