// Plain memory passed to communicators: address, element count, element type. Non-owning.
#pragma once

#include <concepts>
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

// Customization point for other containers: specialize with `static Buffer of(const T&)`. tensors/tensors.h
// does this for torch::Tensor, so that communicators accept tensors directly.
template <class T>
struct BufferOf;

// A writable array of `count` elements; ConstBuffer: a read-only one. Both convert implicitly from vectors
// and from types with a BufferOf specialisation. They do not own the memory, which must stay valid while an
// operation uses it.
struct Buffer;
template <class T>
concept HasBuffer = requires(const T& value) {
  { BufferOf<T>::of(value) } -> std::same_as<Buffer>;
};

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
  template <HasBuffer T>
  Buffer(const T& value)  // NOLINT: meant to convert
      : Buffer(BufferOf<T>::of(value)) {}
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
  template <HasBuffer T>
  ConstBuffer(const T& value)  // NOLINT: meant to convert
      : ConstBuffer(BufferOf<T>::of(value)) {}
  size_t bytes() const { return static_cast<size_t>(count) * size_of(type); }
};

// Memory that a backend moves without a copy. Shared ownership: freed with the last copy.
struct Memory {
  std::shared_ptr<void> data;
  size_t bytes = 0;
};

}  // namespace yoke::comm
