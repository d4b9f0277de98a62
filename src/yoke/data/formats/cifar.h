// CIFAR-10's binary version: records of one label (0..9) and 3x32x32 bytes, planes red, green, blue.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace yoke::data {

constexpr int64_t kCifarRecordBytes = 1 + 3 * 32 * 32;

// Checks sizes and every label; returns the number of records. Throws ConfigError (names `file` and offset).
int64_t check_cifar10(std::string_view bytes, const std::string& file);

}  // namespace yoke::data
