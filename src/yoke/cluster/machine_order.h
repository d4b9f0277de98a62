// Ranks machine after machine, for copies that are to be on another machine than what they copy.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace yoke::cluster {

struct MachineOrder {
  std::vector<int> ranks;  // machines in the order of their first ranks
  // So many places further in `ranks`, around the end, is another machine: for every rank as long as no
  // machine has more than half of them; of one that has more, for as many as there are ranks elsewhere. 1 on
  // one machine, or with one rank on each.
  size_t step = 1;
};

// `machines`: by rank.
MachineOrder order_by_machine(const std::vector<std::string>& machines);

}  // namespace yoke::cluster
