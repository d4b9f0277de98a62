// How the values of a range travel in a push: as they are, or in fewer bytes (ddp.hook). What an encoding
// leaves out stays with the worker (Learner), which adds it to its next gradient of that range.
//
//   fp16, bf16   n values of 2 bytes
//   int8         a scale for 512 values (fp32), then a byte for each value
//   sign         a scale for 1024 values (fp32), then a bit for each value
//   topk         k values, then their k positions (int32) in ascending order; k = fraction n, at least 1
//
// A range that would not be shorter travels as it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "yoke/base/data_type.h"

namespace yoke::ps {

enum class Encoding : int64_t { kPlain, kFp16, kBf16, kInt8, kSign, kTopk };

struct Packing {
  Encoding encoding = Encoding::kPlain;
  double fraction = 1;  // kTopk

  bool active() const { return encoding != Encoding::kPlain; }
  // Whether what is left out counts later. Casts round to nearest, without.
  bool feeds_back() const;
};

// `name`: none fp16 bf16 int8 sign topk. Throws ConfigError for others.
Packing make_packing(const std::string& name, double fraction);

struct Packed {
  Encoding encoding = Encoding::kPlain;
  std::vector<std::byte> bytes;
};

// `type`: fp32 or fp64. Throws ConfigError if a value is beyond the range of fp16.
Packed pack(const Packing& packing, std::span<const std::byte> values, DataType type);
// Bytes that pack() makes of this many values.
size_t packed_bytes(const Packing& packing, int64_t count, DataType type);
// Fills `values`. Throws CommError unless the bytes are what pack() makes of as many values.
void unpack(Encoding encoding, std::span<const std::byte> bytes, DataType type, std::span<std::byte> values);

}  // namespace yoke::ps
