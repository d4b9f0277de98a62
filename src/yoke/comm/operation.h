// An operation as backends see it, and the descriptor that ranks compare.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "yoke/comm/buffer.h"
#include "yoke/plan/collectives/steps.h"

namespace yoke::comm {

inline constexpr uint8_t kSendOp = 100;
inline constexpr uint8_t kReceiveOp = 101;

// What a rank called. Identical bytes on all ranks, or the ranks disagree. Fixed size, so that it fits a
// frame and a slot in shared memory.
struct Descriptor {
  uint8_t op;  // plan::Collective, kSendOp or kReceiveOp
  DataType type;
  ReduceOp reduce;
  uint8_t dims;
  int32_t root;
  uint64_t number;   // of the operation in its group, starting at 1
  int64_t count;     // elements (all_gather: of the output)
  int64_t shape[4];  // leading dimensions; the last entry is the product of the rest
  uint64_t parts;    // hash of unequal parts
  char name[48];     // truncated, zero-terminated

  // All zero: all_reduce, fp32, sum. Cleared in two parts, because compilers emit a slow string instruction
  // for the whole struct.
  Descriptor() {
    std::memset(static_cast<void*>(this), 0, sizeof(Descriptor) - sizeof(name));
    std::memset(name, 0, sizeof(name));
  }
  void set_name(std::string_view text);
  void set_shape(std::span<const int64_t> sizes);
  uint64_t fingerprint() const;
  // "all_reduce #17 'bucket 2' sum of fp32 [128, 64]". Accepts any bytes: unknown operations, types and
  // reductions are shown as numbers.
  std::string text() const;
  std::string short_text() const;  // "all_reduce 'bucket 0'"
  bool operator==(const Descriptor&) const = default;
};
static_assert(sizeof(Descriptor) == 112 && offsetof(Descriptor, name) == 64);
static_assert(DataType{} == DataType::kFloat32 && ReduceOp{} == ReduceOp::kSum);

// Both sides of a mismatch in one sentence: "rank 2 called X, rank 0 called Y".
std::string describe_mismatch(int rank_a, const Descriptor& a, int rank_b, const Descriptor& b);

struct Operation {
  plan::Collective op = plan::Collective::kAllReduce;
  Descriptor descriptor;
  uint64_t fingerprint = 0;
  ReduceOp reduce = ReduceOp::kSum;
  int root = 0;
  ConstBuffer input;  // all_reduce, reduce, broadcast: the same memory as output
  Buffer output;
  std::vector<int64_t> parts;  // all_gather with unequal parts
  std::optional<plan::Algorithm> algorithm;
};

}  // namespace yoke::comm
