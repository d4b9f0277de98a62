// Groups of a large collaboration (Moshpit, Ryabinin et al. 2021): in each round of a step every peer
// averages in a small group, and later groups mix earlier ones, so that all have the mean after as many
// rounds as the grid has axes. Plain data, no I/O.
//
// A class is a set of peers that have the same value: at first every peer is one, after a round all groups
// that averaged the same classes. A round takes up to `group_size` classes together. Each of its groups has
// one member of each class, so its mean is exact; members left over in larger classes only receive. With
// side^axes peers this is the grid of the paper: rows, then columns, …, all groups of `side`. With any other
// number it is exact too.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace yoke::collab {

struct GridClass {
  std::vector<int> members;
  double weight = 1;  // of its value
};

struct GridGroup {
  std::vector<int> givers;  // one of each class, in their order
  std::vector<int> receivers;
};

struct GridBundle {
  std::vector<size_t> classes;  // which the groups take together
  std::vector<GridGroup> groups;
};

// The groups of the next round: all classes are in one bundle each. `sums`: whether a peer can sum; every
// group has one that can, if need be by being larger. Requires that somebody can.
std::vector<GridBundle> grid_round(const std::vector<GridClass>& classes, size_t group_size,
                                   const std::function<bool(int)>& sums);

// The same for classes that are to be one bundle.
GridBundle grid_bundle(const std::vector<GridClass>& classes, std::vector<size_t> which,
                       const std::function<bool(int)>& sums);

// The classes after a round.
std::vector<GridClass> merged(const std::vector<GridClass>& classes, const std::vector<GridBundle>& bundles);

// For `peers`, if nobody has said otherwise: all in one group up to kLargestGroup, beyond it two rounds.
inline constexpr size_t kLargestGroup = 64;
size_t chosen_group_size(size_t peers);

// Expected factor by which one round in `groups` random groups of equal size reduces the variance between
// `peers` values.
double variance_factor(int groups, int peers);

}  // namespace yoke::collab
