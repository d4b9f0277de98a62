// Plain memory as communicators see it: where, how many elements, of which type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "yoke/base/data_type.h"

namespace yoke::comm {

template <class T>
constexpr DataType data_type_of() {
  if constexpr (std::is_same_v<T, float>)
    return DataType::kFloat32;
  else if constexpr (std::is_same_v<T, double>)
    return DataType::kFloat64;
  else if constexpr (std::is_same_v<T, int8_t>)
    return DataType::kInt8;
  else if constexpr (std::is_same_v<T, uint8_t>)
    return DataType::kUint8;
  else if constexpr (std::is_same_v<T, int16_t>)
    return DataType::kInt16;
  else if constexpr (std::is_same_v<T, int32_t>)
    return DataType::kInt32;
  else {
    static_assert(std::is_same_v<T, int64_t>, "no such element type");
    return DataType::kInt64;
  }
}

struct Buffer {
  void* data = nullptr;
  int64_t count = 0;
  DataType type = DataType::kFloat32;

  Buffer() = default;
  Buffer(void* memory, int64_t elements, DataType element_type)
      : data(memory), count(elements), type(element_type) {}
  template <class T>
  Buffer(std::vector<T>& values)  // NOLINT: meant to convert
      : data(values.data()), count(static_cast<int64_t>(values.size())), type(data_type_of<T>()) {}
  size_t bytes() const { return static_cast<size_t>(count) * size_of(type); }
};

struct ConstBuffer {
  const void* data = nullptr;
  int64_t count = 0;
  DataType type = DataType::kFloat32;

  ConstBuffer() = default;
  ConstBuffer(const void* memory, int64_t elements, DataType element_type)
      : data(memory), count(elements), type(element_type) {}
  ConstBuffer(const Buffer& other)  // NOLINT: meant to convert
      : data(other.data), count(other.count), type(other.type) {}
  template <class T>
  ConstBuffer(const std::vector<T>& values)  // NOLINT: meant to convert
      : data(values.data()), count(static_cast<int64_t>(values.size())), type(data_type_of<T>()) {}
  size_t bytes() const { return static_cast<size_t>(count) * size_of(type); }
};

// Memory a backend can move without a copy. Freed with its last copy.
struct Memory {
  std::shared_ptr<void> data;
  size_t bytes = 0;
};

}  // namespace yoke::comm
