#include "yoke/engine/copy_ring.h"

#include "yoke/cluster/machine_order.h"

namespace yoke::engine {

CopyRing copy_ring(const std::vector<std::string>& machines) {
  const cluster::MachineOrder order = cluster::order_by_machine(machines);
  const size_t size = order.ranks.size();
  CopyRing ring{std::vector<int>(size), std::vector<int>(size)};
  for (size_t i = 0; i < size; ++i) {
    const int owner = order.ranks[i], keeper = order.ranks[(i + order.step) % size];
    ring.keeper_of[static_cast<size_t>(owner)] = keeper;
    ring.owner_of[static_cast<size_t>(keeper)] = owner;
  }
  return ring;
}

}  // namespace yoke::engine
