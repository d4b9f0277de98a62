// Saves and loads the state of objects that list their fields: `template <class Archive> void
// exchange(Archive&)`.
//
// Fields are trivially copyable, or lists of such; both ends run the same program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <span>
#include <type_traits>
#include <vector>

#include "yoke/base/error.h"

namespace yoke::ps {

class Saver {
 public:
  static constexpr bool kLoads = false;

  template <class T>
  void operator()(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto* begin = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), begin, begin + sizeof(T));
  }
  template <class T>
  void operator()(const std::vector<T>& list) {
    (*this)(static_cast<int64_t>(list.size()));
    for (const T& one : list) (*this)(one);
  }
  template <class T>
  void operator()(const std::deque<T>& list) {
    (*this)(std::vector<T>(list.begin(), list.end()));
  }
  void put_bytes(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// Throws CommError where the bytes end early.
class Loader {
 public:
  static constexpr bool kLoads = true;

  explicit Loader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
  void operator()(T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (sizeof(T) > bytes_.size())
      throw CommError("a saved state has {} bytes where {} are expected", bytes_.size(), sizeof(T));
    std::memcpy(&value, bytes_.data(), sizeof(T));
    bytes_ = bytes_.subspan(sizeof(T));
  }
  template <class T>
  void operator()(std::vector<T>& list) {
    int64_t count = 0;
    (*this)(count);
    if (count < 0 || static_cast<size_t>(count) > bytes_.size() / sizeof(T))
      throw CommError("a saved state ends in the middle of a list of {}", count);
    list.resize(static_cast<size_t>(count));
    for (T& one : list) (*this)(one);
  }
  template <class T>
  void operator()(std::deque<T>& list) {
    std::vector<T> all;
    (*this)(all);
    list.assign(all.begin(), all.end());
  }
  std::span<const std::byte> get_bytes(size_t count) {
    if (count > bytes_.size())
      throw CommError("a saved state has {} bytes where {} are expected", bytes_.size(), count);
    std::span<const std::byte> part = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return part;
  }
  std::span<const std::byte> rest() { return get_bytes(bytes_.size()); }
  bool at_end() const { return bytes_.empty(); }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace yoke::ps
