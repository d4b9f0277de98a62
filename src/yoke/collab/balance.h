// Which share of the vector each peer of a group sums, so that the slowest link is done as early as possible.
//
// Every peer sends its part of the vector to each reducer and receives the mean. A peer that sums the share w
// moves 1 + (n-2) w vectors each way. The shares minimise the largest time load / bandwidth (Diskin et al.
// 2021; closed form by water-filling).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace yoke::collab {

// Link of a peer in bytes per second (any unit, the same for all). 0: it accepts no connections, so it sends
// and never sums. nullopt: unknown, counted as the mean of the known ones.
using Bandwidth = std::optional<double>;

struct Balance {
  std::vector<double> shares;  // one per peer, at least 0, sum 1
  double time = 0;  // of one vector's worth of data on a link of bandwidth 1: largest load / bandwidth
};

// Throws ConfigError for a negative or non-finite bandwidth, and if no peer can sum.
Balance balance_load(const std::vector<Bandwidth>& bandwidths);

// The largest load / bandwidth of given shares, for comparison.
double averaging_time(const std::vector<Bandwidth>& bandwidths, const std::vector<double>& shares);

// `count` elements divided by `shares`: the floor of each quota, then one element at a time to the largest
// share / (elements + 1). Parts below `least` elements are dropped first, except for the largest share.
std::vector<int64_t> integer_parts(int64_t count, std::vector<double> shares, int64_t least = 0);

}  // namespace yoke::collab
