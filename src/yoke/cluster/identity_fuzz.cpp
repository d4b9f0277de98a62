// Any environment: an identity that holds together, or an error that says why. Never a crash.
//
// The input is a list of lines: a digit or letter that chooses a variable, then its value.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>

#include "yoke/base/error.h"
#include "yoke/cluster/identity.h"

namespace {

constexpr const char* kNames[] = {"YOKE_RANK",
                                  "YOKE_WORLD_SIZE",
                                  "YOKE_LOCAL_RANK",
                                  "YOKE_LOCAL_WORLD_SIZE",
                                  "YOKE_NODE_RANK",
                                  "YOKE_COORDINATOR",
                                  "YOKE_JOB_ID",
                                  "YOKE_GENERATION",
                                  "YOKE_JOB_KEY",
                                  "RANK",
                                  "WORLD_SIZE",
                                  "LOCAL_RANK",
                                  "LOCAL_WORLD_SIZE",
                                  "GROUP_RANK",
                                  "GROUP_WORLD_SIZE",
                                  "MASTER_ADDR",
                                  "MASTER_PORT",
                                  "TORCHELASTIC_RESTART_COUNT",
                                  "TORCHELASTIC_RUN_ID",
                                  "TORCHELASTIC_USE_AGENT_STORE",
                                  "OMPI_COMM_WORLD_RANK",
                                  "OMPI_COMM_WORLD_SIZE",
                                  "OMPI_COMM_WORLD_LOCAL_RANK",
                                  "OMPI_COMM_WORLD_LOCAL_SIZE",
                                  "OMPI_COMM_WORLD_NODE_RANK",
                                  "PMIX_NAMESPACE",
                                  "PMIX_RANK",
                                  "PMI_RANK",
                                  "PMI_SIZE",
                                  "MPI_LOCALRANKID",
                                  "MPI_LOCALNRANKS",
                                  "SLURM_PROCID",
                                  "SLURM_JOB_ID",
                                  "SLURM_STEP_ID",
                                  "SLURM_STEP_NUM_TASKS",
                                  "SLURM_NTASKS",
                                  "SLURM_LOCALID",
                                  "SLURM_NODEID",
                                  "SLURM_STEP_TASKS_PER_NODE",
                                  "SLURM_TASKS_PER_NODE",
                                  "SLURM_STEP_NODELIST",
                                  "SLURM_JOB_NODELIST",
                                  "SLURM_RESTART_COUNT",
                                  "JOB_COMPLETION_INDEX",
                                  "PET_NNODES",
                                  "PET_NPROC_PER_NODE",
                                  "PET_NODE_RANK"};
constexpr size_t kCount = sizeof(kNames) / sizeof(kNames[0]);

void check(const yoke::cluster::Identity& self) {
  bool good = self.rank >= 0 && self.rank < self.world_size && self.local_rank >= 0 &&
              self.local_rank < self.local_world_size && self.local_world_size <= self.world_size &&
              self.node_rank >= 0 && (self.world_size == 1 || !self.endpoint.empty());
  for (const auto& variable : self.variables) good = good && (variable.used || !variable.why.empty());
  if (!good) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::map<std::string, std::string> table;
  std::string value;
  size_t chosen = kCount;
  for (size_t i = 0; i <= size; ++i) {
    if (i == size || data[i] == '\n') {
      if (chosen < kCount) table[kNames[chosen]] = value;
      chosen = kCount;
      value.clear();
    } else if (chosen == kCount) {
      chosen = data[i] % kCount;
    } else if (data[i] != 0) {
      value += static_cast<char>(data[i]);
    }
  }
  try {
    check(yoke::cluster::identify([&](const std::string& name) -> std::optional<std::string> {
      auto found = table.find(name);
      return found == table.end() ? std::nullopt : std::optional(found->second);
    }));
  } catch (const yoke::ConfigError&) {
  }
  return 0;
}
