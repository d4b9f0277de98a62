// Maps the ranks of a group to machines.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace yoke::comm {

struct MachineLayout {
  int rank = 0;  // this rank
  // Ranks of each machine, ascending; machines ordered by their lowest rank.
  std::vector<std::vector<int>> machines;

  // `names[r]`: machine of rank r (cluster::Member::machine).
  static MachineLayout of(int rank, std::span<const std::string> names);

  int size() const;
  int machine_of(int other) const;
  int index_of(int other) const;  // position among the ranks of its machine
  int machine() const { return machine_of(rank); }
  int index() const { return index_of(rank); }
  const std::vector<int>& neighbours() const { return machines[static_cast<size_t>(machine())]; }
  bool equal() const;  // all machines have the same number of ranks

  // The ranks this rank exchanges data with between machines, itself included: the ranks of equal index if
  // all machines have the same number of ranks, else the first rank of every machine. Empty if this rank does
  // not communicate between machines.
  std::vector<int> cross() const;
  // Layout of a sub-group, its ranks in their new order.
  MachineLayout of_members(std::span<const int> members) const;
};

}  // namespace yoke::comm
