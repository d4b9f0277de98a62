#include "yoke/comm/nccl/nccl_sharing.h"

#include <fmt/ranges.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "yoke/base/log.h"
#include "yoke/comm/nccl/nccl_group.h"

namespace yoke::comm::nccl {
namespace {

// Identical for two processes if and only if they use the same device, across containers too.
std::string name_of(int device) {
  char bus[64] = {};
  check(cudaDeviceGetPCIBusId(bus, sizeof(bus), device), "cudaDeviceGetPCIBusId");
  std::string machine;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> machine;
  return machine + " " + bus;
}

// All ranks send their device to rank 0, which answers who shares one: two messages per rank.
std::vector<int> who_shares(const NcclSetup& setup, const std::string& key, Deadline deadline) {
  if (setup.rank != 0) {
    setup.put(fmt::format("{}/device/{}", key, setup.rank), name_of(setup.device), deadline);
  } else {
    std::map<std::string, std::vector<int>> by_device{{name_of(setup.device), {0}}};
    for (int rank = 1; rank < setup.size; rank++)
      by_device[setup.get(fmt::format("{}/device/{}", key, rank), deadline)].push_back(rank);
    std::vector<int> sharing;
    for (const auto& [device, ranks] : by_device) {
      if (ranks.size() < 2) continue;
      sharing.insert(sharing.end(), ranks.begin(), ranks.end());
      log::warn("ranks {} share one GPU: they run in turns, and NCCL copies their data through the host",
                fmt::join(ranks, ", "));
    }
    setup.put(key + "/sharing", fmt::format("{}", fmt::join(sharing, " ")), deadline);
    return sharing;
  }
  std::istringstream text(setup.get(key + "/sharing", deadline));
  return {std::istream_iterator<int>(text), std::istream_iterator<int>()};
}

}  // namespace

void allow_sharing(const NcclSetup& setup, const std::string& key, Deadline deadline) {
  if (setup.size < 2) return;
  for (int rank : who_shares(setup, key, deadline))
    if (rank == setup.rank) ::setenv("NCCL_HOSTID", fmt::format("{} rank {}", key, rank).c_str(), 0);
}

}  // namespace yoke::comm::nccl
