// Which ranks of a group share a machine.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace yoke::comm {

struct MachineLayout {
  int rank = 0;                            // this one
  std::vector<std::vector<int>> machines;  // ranks of each, ascending; machines in order of their lowest rank

  // `names[r]`: the machine of rank r (cluster::Member::machine).
  static MachineLayout of(int rank, std::span<const std::string> names);

  int size() const;
  int machine_of(int other) const;
  int index_of(int other) const;  // among the ranks of its machine
  int machine() const { return machine_of(rank); }
  int index() const { return index_of(rank); }
  const std::vector<int>& neighbours() const { return machines[static_cast<size_t>(machine())]; }
  bool equal() const;  // as many ranks on each machine

  // The ranks that this one talks to on behalf of its machine, itself among them: those with its index on
  // every machine when all have as many, otherwise the first of every machine. Empty: others do it.
  std::vector<int> cross() const;
  // The layout of a group of some of these ranks, in their new order.
  MachineLayout of_members(std::span<const int> members) const;
};

}  // namespace yoke::comm
