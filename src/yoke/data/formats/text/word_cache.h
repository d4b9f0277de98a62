// The tokens of words that were encoded before: most words of a text are.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/data/formats/text/pair_table.h"

namespace yoke::data {

// Holds at most some megabytes: it forgets everything when it is full. Not thread-safe.
class WordCache {
 public:
  WordCache() : slots_(kFirstSlots) {}

  // Empty: not seen yet. Valid until the next put().
  std::span<const TokenId> find(std::string_view word) const;
  // Requires that find() gave nothing. Long words are not kept.
  void put(std::string_view word, std::span<const TokenId> tokens);

 private:
  static constexpr size_t kFirstSlots = size_t{1} << 10;  // powers of two
  static constexpr size_t kMostSlots = size_t{1} << 18;
  static constexpr size_t kLongest = 64;
  struct Slot {
    uint64_t hash = 0;
    uint32_t word = 0, tokens = 0;   // where they begin
    uint16_t length = 0, count = 0;  // count 0: free
  };
  void make_room();
  size_t place(std::string_view word, uint64_t hash) const;

  std::vector<Slot> slots_;
  std::string words_;
  std::vector<TokenId> tokens_;
  size_t count_ = 0;
};

}  // namespace yoke::data
