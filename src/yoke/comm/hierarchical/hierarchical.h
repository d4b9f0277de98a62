// Ranks on several machines: what can be combined inside a machine is combined there first, over shared
// memory, and only that travels between machines.
//
// all_reduce: reduce_scatter inside each machine, all_reduce of each shard between the ranks of equal index,
// all_gather inside. Machines with unequal numbers of ranks go through their first rank. broadcast, reduce,
// all_gather and barrier likewise; the other operations, and those that ask for another algorithm than
// `hierarchical`, go flat. Contributions are combined machine by machine, in an order that depends on the
// layout only. 16-bit types are rounded once on each level.
#pragma once

#include <memory>

#include "yoke/comm/backend.h"
#include "yoke/comm/hierarchical/layout.h"

namespace yoke::comm {

// `local`: the ranks of this machine, in ascending order. `cross`: layout.cross() in that order; nullptr
// where that is empty. `flat`: all ranks. The descriptor of an operation is handed on as it is.
std::unique_ptr<Backend> make_hierarchical_backend(std::unique_ptr<Backend> local,
                                                   std::unique_ptr<Backend> cross,
                                                   std::unique_ptr<Backend> flat,
                                                   const MachineLayout& layout);

// The cross backend, made from the flat one: `group` is that of the whole, other ids are derived from it.
std::unique_ptr<Backend> split_cross(Backend& flat, const MachineLayout& layout, uint64_t group,
                                     Deadline deadline);

}  // namespace yoke::comm
