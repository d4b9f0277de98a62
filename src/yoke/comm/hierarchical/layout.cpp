#include "yoke/comm/hierarchical/layout.h"

#include <algorithm>
#include <map>

#include "yoke/base/error.h"

namespace yoke::comm {

MachineLayout MachineLayout::of(int rank, std::span<const std::string> names) {
  MachineLayout layout;
  layout.rank = rank;
  std::map<std::string, size_t> known;
  for (size_t r = 0; r < names.size(); ++r) {
    auto [found, is_new] = known.emplace(names[r], layout.machines.size());
    if (is_new) layout.machines.emplace_back();
    layout.machines[found->second].push_back(static_cast<int>(r));
  }
  return layout;
}

int MachineLayout::size() const {
  size_t sum = 0;
  for (const auto& machine : machines) sum += machine.size();
  return static_cast<int>(sum);
}

int MachineLayout::machine_of(int other) const {
  for (size_t m = 0; m < machines.size(); ++m) {
    if (std::binary_search(machines[m].begin(), machines[m].end(), other)) return static_cast<int>(m);
  }
  YOKE_CHECK(false, "rank {} is on no machine", other);
  return -1;
}

int MachineLayout::index_of(int other) const {
  const auto& ranks = machines[static_cast<size_t>(machine_of(other))];
  return static_cast<int>(std::lower_bound(ranks.begin(), ranks.end(), other) - ranks.begin());
}

bool MachineLayout::equal() const {
  return std::all_of(machines.begin(), machines.end(),
                     [&](const auto& machine) { return machine.size() == machines[0].size(); });
}

std::vector<int> MachineLayout::cross() const {
  size_t column = equal() ? static_cast<size_t>(index()) : 0;
  std::vector<int> ranks;
  if (!equal() && index() != 0) return ranks;
  for (const auto& machine : machines) ranks.push_back(machine[column]);
  return ranks;
}

MachineLayout MachineLayout::of_members(std::span<const int> members) const {
  std::vector<std::string> names;
  int position = -1;
  for (int member : members) {
    if (member == rank) position = static_cast<int>(names.size());
    names.push_back(std::to_string(machine_of(member)));
  }
  return of(position, names);
}

}  // namespace yoke::comm
