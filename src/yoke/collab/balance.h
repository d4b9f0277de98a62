// Which share of the vector each peer of a group sums, so that the slowest link is done as early as possible.
//
// Every peer that has a gradient sends its part of the vector to each reducer; every peer receives the mean.
// Of n peers k have a gradient. In vectors, a peer that sums the share w moves
//
//              up               down
//   gradient   1 + (n-2) w      1 + (k-2) w
//   none       (n-1) w          1 + (k-1) w
//
// The shares minimise the largest load / bandwidth of any direction of any link: a linear programme of the
// shares and that time (Diskin et al. 2021). For a given time each share has a smallest and a largest value,
// so the time is found by bisection; nothing else is searched.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace yoke::collab {

// One direction of a link in bytes per second (any unit, the same for all). nullopt: unknown, counted as the
// mean of the known ones of that direction.
using Bandwidth = std::optional<double>;

struct LinkSpeed {
  double upload = 0, download = 0;  // bytes per second; 0: unknown
};

struct Link {
  Bandwidth upload, download;
  bool sums = true;   // false: it accepts no connections, so its share is 0
  bool gives = true;  // it has a gradient
};

struct Balance {
  std::vector<double> shares;  // one per peer, at least 0, sum 1
  double time = 0;  // of one vector's worth of data on a link of bandwidth 1: largest load / bandwidth
};

// Throws ConfigError for a bandwidth that is not above 0 and finite, and if no peer can sum.
Balance balance_links(const std::vector<Link>& links);

// The same for links that are as fast in both directions, whose peers all have a gradient. 0: it accepts no
// connections, and its own link takes no time.
Balance balance_load(const std::vector<Bandwidth>& bandwidths);

// The largest load / bandwidth of given shares, for comparison.
double links_time(const std::vector<Link>& links, const std::vector<double>& shares);
double averaging_time(const std::vector<Bandwidth>& bandwidths, const std::vector<double>& shares);

// `count` elements divided by `shares`: the floor of each quota, then one element at a time to the largest
// share / (elements + 1). Parts below `least` elements are dropped first, except for the largest share.
std::vector<int64_t> integer_parts(int64_t count, std::vector<double> shares, int64_t least = 0);

}  // namespace yoke::collab
