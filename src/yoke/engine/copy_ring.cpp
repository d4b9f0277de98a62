#include "yoke/engine/copy_ring.h"

#include <algorithm>
#include <map>

namespace yoke::engine {

// Machine after machine, moved on by the ranks of the largest: from any of them that leads out of it.
CopyRing copy_ring(const std::vector<std::string>& machines) {
  std::vector<std::vector<int>> groups;  // in the order of their first ranks
  std::map<std::string, size_t> group_of;
  for (size_t rank = 0; rank < machines.size(); ++rank) {
    const auto [at, added] = group_of.emplace(machines[rank], groups.size());
    if (added) groups.emplace_back();
    groups[at->second].push_back(static_cast<int>(rank));
  }
  std::vector<int> order;
  size_t largest = 0;
  for (const auto& group : groups) {
    order.insert(order.end(), group.begin(), group.end());
    largest = std::max(largest, group.size());
  }
  const size_t shift = groups.size() > 1 ? largest : 1;
  CopyRing ring{std::vector<int>(order.size()), std::vector<int>(order.size())};
  for (size_t i = 0; i < order.size(); ++i) {
    const int owner = order[i], keeper = order[(i + shift) % order.size()];
    ring.keeper_of[static_cast<size_t>(owner)] = keeper;
    ring.owner_of[static_cast<size_t>(keeper)] = owner;
  }
  return ring;
}

}  // namespace yoke::engine
