// Rows of values by key: what a server holds of a sparse table.
//
// A row has `width` values, and as many in each state array of the update rule. It is created as zeros when
// its key is used first, so memory grows with the keys seen, not with the key space. Rows lie in the order of
// their creation: keys that are sent together lie together, and a list of keys that is sent again is found
// as a whole. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "yoke/base/data_type.h"
#include "yoke/ps/sparse/key_split.h"

namespace yoke::ps::sparse {

class KeyTable {
 public:
  static constexpr uint32_t kAbsent = ~uint32_t{0};

  // `arrays`: the values and the state arrays. For kFloat32 and kFloat64.
  KeyTable(DataType type, int64_t width, int arrays);

  DataType type() const { return type_; }
  int64_t width() const { return width_; }
  int arrays() const { return static_cast<int>(arrays_.size()); }
  size_t row_bytes() const { return row_bytes_; }  // of one array
  size_t size() const { return keys_.size(); }
  size_t bytes_held() const;

  // The row of each key. find(): kAbsent where there is none. find_or_add(): adds rows of zeros; throws
  // CommError if the table would have more than 2^32 - 2 rows. Fastest for hundreds of keys at once.
  void find(std::span<const Key> keys, uint32_t* rows) const;
  void find_or_add(std::span<const Key> keys, uint32_t* rows);
  // The first row, if rows with exactly these keys follow each other. Requires a key.
  std::optional<uint32_t> find_run(std::span<const Key> keys) const;

  Key key(uint32_t row) const { return keys_[row]; }
  std::byte* at(int array, uint32_t row) {
    return arrays_[static_cast<size_t>(array)].data() + row * row_bytes_;
  }
  const std::byte* at(int array, uint32_t row) const {
    return arrays_[static_cast<size_t>(array)].data() + row * row_bytes_;
  }
  // All rows in ascending order of their keys. Valid until a row is added; sorts what is new.
  std::span<const uint32_t> in_order();

 private:
  size_t slot_of(Key key) const { return static_cast<size_t>((key * kMix) >> shift_); }
  // From this slot on.
  uint32_t look_up(Key key, size_t slot) const;
  uint32_t add(Key key);
  void grow();

  static constexpr uint64_t kMix = 0x9e3779b97f4a7c15;

  DataType type_;
  int64_t width_;
  size_t row_bytes_;
  std::vector<Key> keys_;                       // by row
  std::vector<std::vector<std::byte>> arrays_;  // values, then state; by row
  std::vector<uint32_t> slots_;                 // rows by hash, linear probing, at most half full
  int shift_;                                   // 64 - log2(slots)
  std::vector<uint32_t> order_;                 // rows by key, of the first order_.size() rows
};

}  // namespace yoke::ps::sparse
