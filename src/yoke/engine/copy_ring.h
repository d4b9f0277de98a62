// Who keeps whose copy: on another machine, if there is one.
#pragma once

#include <string>
#include <vector>

namespace yoke::engine {

struct CopyRing {
  std::vector<int> keeper_of;  // by rank: who keeps its copy
  std::vector<int> owner_of;   // by rank: whose copy it keeps
};

// `machines`: by rank. On one machine, or with one rank on each, the next rank is the keeper. Otherwise no
// rank has its copy on its own machine as long as no machine has more than half of the ranks; of one that has
// more, as many as there are ranks elsewhere.
CopyRing copy_ring(const std::vector<std::string>& machines);

}  // namespace yoke::engine
