// Keys of sparse tables, and how servers share them.
#pragma once

#include <cstdint>

namespace yoke::ps::sparse {

using Key = uint64_t;
// Keys are below this.
inline constexpr Key kMostKeys = Key{1} << 63;

// Server s of `servers` holds the keys [begin_of(s), begin_of(s + 1)) of the key space [0, keys): ranges of
// equal size, so that a sorted list of keys splits into one piece for each server.
struct KeySplit {
  Key keys = kMostKeys;
  int servers = 1;
  Key begin_of(int server) const {
    __extension__ using Wide = unsigned __int128;
    return static_cast<Key>(static_cast<Wide>(keys) * static_cast<Wide>(server) / static_cast<Wide>(servers));
  }
};

}  // namespace yoke::ps::sparse
