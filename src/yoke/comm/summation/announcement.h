// What worker 0 tells the spare ranks about the next summation. Plain bytes on the wire.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "yoke/comm/communicator.h"

namespace yoke::comm {

struct Announcement {
  static constexpr int kTag = 0;

  uint8_t last = 0;  // 1: the workers leave, there is nothing to sum
  uint8_t type = 0;
  uint8_t reduce = 0;
  uint8_t unused[5] = {};
  int64_t count = 0;
  double timeout = 0;
  std::array<char, 48> name{};  // truncated, zero-terminated

  Announcement() = default;
  Announcement(const Buffer& data, ReduceOp op, const OpOptions& options);
  // Throws CommError: the bytes are no announcement.
  void check() const;
  size_t bytes() const { return static_cast<size_t>(count) * size_of(static_cast<DataType>(type)); }
};
static_assert(sizeof(Announcement) == 72);

inline Buffer buffer_of(Announcement& announcement) {
  return {&announcement, sizeof(Announcement), DataType::kUint8};
}

}  // namespace yoke::comm
