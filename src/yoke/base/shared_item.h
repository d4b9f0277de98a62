// Distributes fewer items than takers.
#pragma once

#include <cstdint>

namespace yoke {

struct SharedItem {
  int64_t item = 0;
  int64_t holders = 1;  // takers of the same item: each counts it as 1 / holders
};

// The item of taker `taker` of `takers`, if there are at most as many items as takers: every taker gets one,
// every item is taken. Requires 1 <= items <= takers.
inline SharedItem shared_item(int64_t items, int64_t taker, int64_t takers) {
  // Taker t holds item t * items / takers; the first of an item is ceil(item * takers / items).
  const int64_t item = taker * items / takers;
  const int64_t first = (item * takers + items - 1) / items;
  const int64_t end = ((item + 1) * takers + items - 1) / items;
  return {item, end - first};
}

}  // namespace yoke
