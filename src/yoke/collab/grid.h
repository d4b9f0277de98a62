// Groups of a large collaboration: peers sit in a grid, and each round averages along one of its axes
// (Moshpit, Ryabinin et al. 2021). With side^axes peers all have the exact mean after `axes` rounds; a peer
// that fails affects only its group. Plain data, no I/O.
#pragma once

#include <cstdint>
#include <vector>

namespace yoke::collab {

// A peer's place: the digits of its group keys, oldest first.
using GridPlace = std::vector<int>;

// Places of `peers` peers in a grid with `axes` axes of `side` places each. Requires peers <= side^axes.
std::vector<GridPlace> grid_places(int peers, int side, int axes);

// The groups of one round: peers (as indices into `places`) whose places agree in all but the oldest digit.
std::vector<std::vector<int>> grid_groups(const std::vector<GridPlace>& places);

// The places after a round: a peer's index in its group becomes the newest digit, the oldest is dropped.
void advance_places(std::vector<GridPlace>& places, const std::vector<std::vector<int>>& groups);

// Expected factor by which one round in `groups` random groups of equal size reduces the variance between
// `peers` values.
double variance_factor(int groups, int peers);

}  // namespace yoke::collab
