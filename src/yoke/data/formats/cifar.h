// The binary versions of CIFAR: records of one or two labels and 3x32x32 bytes, planes red, green, blue.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace yoke::data {

struct CifarFormat {
  const char* name;
  int classes;
  // Before the class: the number of its superclass, below this; 0: there is none.
  int superclasses = 0;

  size_t class_at() const { return superclasses > 0 ? 1 : 0; }  // within a record
  size_t image_at() const { return class_at() + 1; }
  size_t record_bytes() const { return image_at() + 3 * 32 * 32; }
};

inline constexpr CifarFormat kCifar10Format{"CIFAR-10", 10};
inline constexpr CifarFormat kCifar100Format{"CIFAR-100", 100, 20};

// Checks sizes and every label; returns the number of records. Throws ConfigError (names `file` and offset).
int64_t check_cifar(std::string_view bytes, const CifarFormat& format, const std::string& file);

}  // namespace yoke::data
