#include "yoke/ps/sparse/fixed_point.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace yoke::ps::sparse {
namespace {

template <class T, class Fixed>
double round_values(const T* values, size_t count, RoundingBits& bits, Fixed* into) {
  T most = 0;
  for (size_t i = 0; i < count; ++i) most = std::max(most, std::abs(values[i]));
  constexpr double kLimit = std::numeric_limits<Fixed>::max();
  const double unit = static_cast<double>(most) / kLimit;
  const double inverse = unit > 0 && std::isfinite(1 / unit) ? 1 / unit : 0;
  for (size_t i = 0; i < count; ++i) {
    const double scaled = static_cast<double>(values[i]) * inverse;
    const double down = std::floor(scaled);
    const double rounded = down + (scaled - down > bits.next() ? 1 : 0);
    into[i] = static_cast<Fixed>(std::clamp(rounded, -kLimit, kLimit));
  }
  return inverse > 0 ? unit : 0;
}

template <class T, class Fixed>
void restore(const Fixed* fixed, size_t count, double unit, T* into) {
  for (size_t i = 0; i < count; ++i) into[i] = static_cast<T>(static_cast<double>(fixed[i]) * unit);
}

template <class T>
double to_fixed(std::span<const std::byte> values, int bytes, RoundingBits& bits, std::byte* into) {
  const auto* from = reinterpret_cast<const T*>(values.data());
  const size_t count = values.size() / sizeof(T);
  return bytes == 1 ? round_values(from, count, bits, reinterpret_cast<int8_t*>(into))
                    : round_values(from, count, bits, reinterpret_cast<int16_t*>(into));
}

template <class T>
void from_fixed(std::span<const std::byte> fixed, int bytes, double unit, std::byte* into) {
  auto* to = reinterpret_cast<T*>(into);
  const size_t count = fixed.size() / static_cast<size_t>(bytes);
  if (bytes == 1)
    restore(reinterpret_cast<const int8_t*>(fixed.data()), count, unit, to);
  else
    restore(reinterpret_cast<const int16_t*>(fixed.data()), count, unit, to);
}

}  // namespace

double RoundingBits::next() {
  state_ ^= state_ >> 12;
  state_ ^= state_ << 25;
  state_ ^= state_ >> 27;
  return static_cast<double>((state_ * 0x2545f4914f6cdd1d) >> 11) * 0x1p-53;
}

double to_fixed_point(std::span<const std::byte> values, DataType type, int bytes, RoundingBits& bits,
                      std::byte* into) {
  return type == DataType::kFloat32 ? to_fixed<float>(values, bytes, bits, into)
                                    : to_fixed<double>(values, bytes, bits, into);
}

void from_fixed_point(std::span<const std::byte> fixed, int bytes, double unit, DataType type,
                      std::byte* into) {
  type == DataType::kFloat32 ? from_fixed<float>(fixed, bytes, unit, into)
                             : from_fixed<double>(fixed, bytes, unit, into);
}

}  // namespace yoke::ps::sparse
