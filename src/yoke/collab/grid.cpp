#include "yoke/collab/grid.h"

#include <algorithm>

#include "yoke/base/error.h"

namespace yoke::collab {
namespace {

using Sums = std::function<bool(int)>;

bool any_sums(const std::vector<int>& members, const Sums& sums) {
  return std::any_of(members.begin(), members.end(), sums);
}

// `columns` groups; the members of a class start at another column in each, so that those that sum spread
// out.
std::vector<GridGroup> in_columns(const std::vector<GridClass>& classes, const std::vector<size_t>& which,
                                  size_t columns) {
  std::vector<GridGroup> groups(columns);
  size_t extra = 0;
  for (size_t k = 0; k < which.size(); ++k) {
    const std::vector<int>& members = classes[which[k]].members;
    for (size_t i = 0; i < columns; ++i) groups[(i + k) % columns].givers.push_back(members[i]);
    for (size_t i = columns; i < members.size(); ++i)
      groups[extra++ % columns].receivers.push_back(members[i]);
  }
  return groups;
}

}  // namespace

GridBundle grid_bundle(const std::vector<GridClass>& classes, std::vector<size_t> which, const Sums& sums) {
  size_t columns = SIZE_MAX;
  for (size_t one : which) columns = std::min(columns, classes[one].members.size());
  YOKE_CHECK(columns > 0 && columns < SIZE_MAX, "a bundle of {} classes", which.size());
  auto complete = [&](const GridGroup& group) {
    return any_sums(group.givers, sums) || any_sums(group.receivers, sums);
  };
  std::vector<GridGroup> groups = in_columns(classes, which, columns);
  while (columns > 1 && !std::all_of(groups.begin(), groups.end(), complete))
    groups = in_columns(classes, which, --columns);
  return {std::move(which), std::move(groups)};
}

std::vector<GridBundle> grid_round(const std::vector<GridClass>& classes, size_t group_size,
                                   const Sums& sums) {
  std::vector<size_t> order;
  for (bool wanted : {true, false})
    for (size_t i = 0; i < classes.size(); ++i)
      if (any_sums(classes[i].members, sums) == wanted) order.push_back(i);
  const auto that_sum = static_cast<size_t>(std::count_if(
      classes.begin(), classes.end(), [&](const GridClass& one) { return any_sums(one.members, sums); }));
  YOKE_CHECK(that_sum > 0 && group_size > 0, "a grid of {} classes, none sums", classes.size());
  const size_t count = std::min(that_sum, (classes.size() + group_size - 1) / group_size);
  std::vector<std::vector<size_t>> which(count);
  for (size_t i = 0; i < order.size(); ++i) which[i % count].push_back(order[i]);
  std::vector<GridBundle> bundles;
  for (std::vector<size_t>& one : which) bundles.push_back(grid_bundle(classes, std::move(one), sums));
  return bundles;
}

std::vector<GridClass> merged(const std::vector<GridClass>& classes, const std::vector<GridBundle>& bundles) {
  std::vector<GridClass> after;
  for (const GridBundle& bundle : bundles) {
    GridClass& all = after.emplace_back(GridClass{{}, 0});
    for (size_t one : bundle.classes) {
      all.members.insert(all.members.end(), classes[one].members.begin(), classes[one].members.end());
      all.weight += classes[one].weight;
    }
  }
  return after;
}

size_t chosen_group_size(size_t peers) {
  if (peers <= kLargestGroup) return std::max<size_t>(1, peers);
  size_t side = 1;
  while (side * side < peers) ++side;
  return side;
}

double variance_factor(int groups, int peers) {
  return peers <= 1 ? 0 : static_cast<double>(groups - 1) / (peers - 1);
}

}  // namespace yoke::collab
