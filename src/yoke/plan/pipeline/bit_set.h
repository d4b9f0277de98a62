// Sets of small numbers as 64-bit words: bit n % 64 of bits[n / 64].
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace yoke::plan {

using Bits = std::vector<uint64_t>;

inline bool has_bit(const Bits& bits, size_t index) {
  return ((bits[index / 64] >> (index % 64)) & 1) != 0;
}

inline void set_bit(Bits& bits, size_t index) {
  bits[index / 64] |= uint64_t{1} << (index % 64);
}

// Sets first to last, inclusive; first <= last.
inline void set_bits(Bits& bits, size_t first, size_t last) {
  const uint64_t head = ~uint64_t{0} << (first % 64), tail = ~uint64_t{0} >> (63 - last % 64);
  const size_t begin = first / 64, end = last / 64;
  if (begin == end) {
    bits[begin] |= head & tail;
    return;
  }
  bits[begin] |= head;
  for (size_t word = begin + 1; word < end; ++word) bits[word] = ~uint64_t{0};
  bits[end] |= tail;
}

}  // namespace yoke::plan
