#include "yoke/cluster/machine_order.h"

#include <algorithm>
#include <map>

namespace yoke::cluster {

// The step is the size of the largest machine: from any of them that leads out of it.
MachineOrder order_by_machine(const std::vector<std::string>& machines) {
  std::vector<std::vector<int>> groups;  // in the order of their first ranks
  std::map<std::string, size_t> group_of;
  for (size_t rank = 0; rank < machines.size(); ++rank) {
    const auto [at, added] = group_of.emplace(machines[rank], groups.size());
    if (added) groups.emplace_back();
    groups[at->second].push_back(static_cast<int>(rank));
  }
  MachineOrder order;
  size_t largest = 0;
  for (const auto& group : groups) {
    order.ranks.insert(order.ranks.end(), group.begin(), group.end());
    largest = std::max(largest, group.size());
  }
  if (groups.size() > 1) order.step = largest;
  return order;
}

}  // namespace yoke::cluster
