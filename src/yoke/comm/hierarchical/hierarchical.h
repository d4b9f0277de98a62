// Hierarchical collectives for ranks on several machines: reduce inside each machine over shared memory
// first, then send only the result between machines.
//
// all_reduce: reduce_scatter inside each machine, all_reduce of each shard between the ranks of equal local
// index, all_gather inside. Machines with different numbers of ranks communicate through their first rank.
// broadcast, reduce and barrier are hierarchical too, and with equal numbers of ranks all_gather and
// reduce_scatter; other operations, and those that request another algorithm than `hierarchical`, run flat.
// The order of combination depends on the layout only. 16-bit types are rounded once per level.
#pragma once

#include <memory>

#include "yoke/comm/backend.h"
#include "yoke/comm/hierarchical/layout.h"

namespace yoke::comm {

// `local`: the ranks of this machine in ascending order. `cross`: layout.cross() in that order; nullptr if
// that is empty. `flat`: all ranks. The descriptor of an operation is passed on unchanged, so that mismatches
// show the user's call.
std::unique_ptr<Backend> make_hierarchical_backend(std::unique_ptr<Backend> local,
                                                   std::unique_ptr<Backend> cross,
                                                   std::unique_ptr<Backend> flat,
                                                   const MachineLayout& layout);

// Creates the `cross` backend by splitting `flat`. `group`: id of the whole group; the new id is derived from
// it.
std::unique_ptr<Backend> split_cross(Backend& flat, const MachineLayout& layout, uint64_t group,
                                     Deadline deadline);

}  // namespace yoke::comm
