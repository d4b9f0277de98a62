// Little-endian numbers in byte arrays, for the layouts of this folder.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace yoke::net::wire {

static_assert(std::endian::native == std::endian::little, "the layouts are little-endian");

template <class T>
void put(std::byte* at, T value) {
  static_assert(std::is_integral_v<T>);
  std::memcpy(at, &value, sizeof(T));
}

template <class T>
T get(const std::byte* at) {
  static_assert(std::is_integral_v<T>);
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

}  // namespace yoke::net::wire
