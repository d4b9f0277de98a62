// Which pairs of tokens byte-pair encoding merges, in which order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace yoke::data {

using TokenId = int32_t;

struct Merge {
  TokenId left = 0, right = 0, merged = 0;
};

// A hash table with open addressing: a lookup is one cache miss, and merging is lookups.
class PairTable {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Found {
    uint32_t rank = kNone;  // lower ones merge first; kNone: this pair is not merged
    TokenId merged = 0;
  };

  // The rank of a merge is its place in the list; of equal pairs the last one counts.
  explicit PairTable(const std::vector<Merge>& merges);

  Found find(TokenId left, TokenId right) const {
    const uint64_t key = key_of(left, right);
    for (size_t at = slot_of(key);; at = (at + 1) & mask_) {
      if (slots_[at].key == key) return slots_[at].found;
      if (slots_[at].key == kEmpty) return {};
    }
  }

 private:
  static constexpr uint64_t kEmpty = UINT64_MAX;  // no pair: ids are not negative
  struct Slot {
    uint64_t key = kEmpty;
    Found found{};
  };
  static uint64_t key_of(TokenId left, TokenId right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t slot_of(uint64_t key) const {
    return static_cast<size_t>((key * 0x9e3779b97f4a7c15u) >> 20) & mask_;
  }

  std::vector<Slot> slots_;
  size_t mask_ = 0;
};

// Merges neighbours in `ids` in the order of their ranks, leftmost first, until no pair is left to merge.
// Takes n log n for long inputs.
void merge_pairs(const PairTable& pairs, std::vector<TokenId>& ids);

}  // namespace yoke::data
