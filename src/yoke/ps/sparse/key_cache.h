// The key caching filter: a list of keys that the receiver has is named by its hash (8 bytes in the head)
// instead of sent again.
//
// The receiver keeps the latest lists of each sender and table. A sender that names a list which is gone is
// told so, and sends it again: nothing depends on both ends agreeing on what is kept. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "yoke/ps/sparse/key_split.h"

namespace yoke::ps::sparse {

// Of the keys and their number. Two lists with the same hash are taken for the same one: 2^-64.
uint64_t hash_of(std::span<const Key> keys);

// A list at the receiver.
struct KeptList {
  std::vector<Key> keys;
  std::vector<uint32_t> rows;  // of the keys in their table, once they were looked up (ps/sparse/table.h)
};
using KeyList = std::shared_ptr<KeptList>;
inline KeyList make_list(std::span<const Key> keys) {
  return std::make_shared<KeptList>(KeptList{{keys.begin(), keys.end()}, {}});
}

// Both ends drop their oldest lists beyond these, of each table.
inline constexpr size_t kMostLists = 4096;
inline constexpr size_t kMostListBytes = size_t{64} << 20;

// Lists of one sender for one table, at the receiver.
class KeptLists {
 public:
  // nullptr: not here, or not of this many keys.
  KeyList find(uint64_t hash, size_t keys) const;
  KeyList keep(uint64_t hash, std::span<const Key> keys);
  size_t bytes() const { return bytes_; }

 private:
  std::unordered_map<uint64_t, KeyList> lists_;
  std::deque<uint64_t> order_;  // newest last
  size_t bytes_ = 0;
};

// What a sender believes that a receiver has: its lists, in the order in which they were sent.
class SentLists {
 public:
  bool has(uint64_t hash) const { return bytes_of_.count(hash) != 0; }
  void sent(uint64_t hash, size_t bytes);
  void forget(uint64_t hash);

 private:
  std::unordered_map<uint64_t, size_t> bytes_of_;
  std::deque<uint64_t> order_;  // newest last
  size_t bytes_ = 0;
};

}  // namespace yoke::ps::sparse
