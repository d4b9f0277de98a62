#include "yoke/collab/grid.h"

#include <map>

#include "yoke/base/error.h"

namespace yoke::collab {

std::vector<GridPlace> grid_places(int peers, int side, int axes) {
  YOKE_CHECK(side >= 1 && axes >= 1, "a grid with {} axes of {} places", axes, side);
  std::vector<GridPlace> places;
  for (int peer = 0; peer < peers; ++peer) {
    GridPlace place(static_cast<size_t>(axes));
    int rest = peer;
    for (int& digit : place) {
      digit = rest % side;
      rest /= side;
    }
    YOKE_CHECK(rest == 0, "{} peers do not fit into {} axes of {} places", peers, axes, side);
    places.push_back(std::move(place));
  }
  return places;
}

std::vector<std::vector<int>> grid_groups(const std::vector<GridPlace>& places) {
  std::map<GridPlace, std::vector<int>> by_key;
  for (size_t peer = 0; peer < places.size(); ++peer)
    by_key[GridPlace(places[peer].begin() + 1, places[peer].end())].push_back(static_cast<int>(peer));
  std::vector<std::vector<int>> groups;
  for (auto& [key, members] : by_key) groups.push_back(std::move(members));
  return groups;
}

void advance_places(std::vector<GridPlace>& places, const std::vector<std::vector<int>>& groups) {
  for (const std::vector<int>& group : groups) {
    for (size_t index = 0; index < group.size(); ++index) {
      GridPlace& place = places[static_cast<size_t>(group[index])];
      place.erase(place.begin());
      place.push_back(static_cast<int>(index));
    }
  }
}

double variance_factor(int groups, int peers) {
  return peers <= 1 ? 0 : static_cast<double>(groups - 1) / (peers - 1);
}

}  // namespace yoke::collab
