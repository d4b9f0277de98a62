// The fixed-point filter: values as int8 or int16 times a unit, the largest magnitude of the message divided
// by the largest integer.
//
// A value between two integers is rounded up with the probability of its fraction, so that the mean of what
// is sent is the value: sums of gradients stay unbiased. Zeros stay zeros.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "yoke/base/data_type.h"

namespace yoke::ps::sparse {

// Random bits for rounding (xorshift64*), the same for the same seed. Not thread-safe.
class RoundingBits {
 public:
  explicit RoundingBits(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15 + 1) {}
  // In [0, 1).
  double next();

 private:
  uint64_t state_;
};

// `bytes` per value: 1 or 2; `into` has that many for each. Returns the unit. Requires finite values of
// `type`.
double to_fixed_point(std::span<const std::byte> values, DataType type, int bytes, RoundingBits& bits,
                      std::byte* into);
// The values, as `type`, in `into`.
void from_fixed_point(std::span<const std::byte> fixed, int bytes, double unit, DataType type,
                      std::byte* into);

}  // namespace yoke::ps::sparse
