#include "yoke/ps/replica_ranks.h"

#include <fmt/format.h>

namespace yoke::ps {

std::vector<int> ReplicaRanks::ranks_of(int replica) const {
  std::vector<int> all;
  for (int rank = 0; rank < ranks(); ++rank)
    if (replica_of(rank) == replica) all.push_back(rank);
  return all;
}

std::string worker_name(const ReplicaRanks& ranks, int replica) {
  if (replica >= ranks.replicas) return fmt::format("worker {} (rank {})", replica, ranks.first_of(replica));
  std::string list;
  for (int rank : ranks.ranks_of(replica)) list += fmt::format("{}{}", list.empty() ? "" : ", ", rank);
  return fmt::format("worker {} (rank{} {})", replica, ranks.parts() > 1 ? "s" : "", list);
}

std::string role_name(const ReplicaRanks& ranks, int rank) {
  std::string name = fmt::format("worker {}", ranks.replica_of(rank));
  if (ranks.stages > 1) name += fmt::format(", stage {}", ranks.stage_of(rank));
  if (ranks.slices > 1) name += fmt::format(", slice {}", ranks.slice_of(rank));
  return name;
}

}  // namespace yoke::ps
