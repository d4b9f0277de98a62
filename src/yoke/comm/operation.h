// One operation as backends see it, and what is compared between ranks.
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

// What a rank asked for. The same bytes on every rank, or the ranks disagree; fixed size, so that it fits a
// frame and a slot in shared memory.
struct Descriptor {
  uint8_t op;  // plan::Collective, kSendOp or kReceiveOp
  DataType type;
  ReduceOp reduce;
  uint8_t dims;
  int32_t root;
  uint64_t number;   // of the operation in its group, from 1
  int64_t count;     // elements of the request (all_gather: of the output)
  int64_t shape[4];  // the first dimensions; the product of the rest in the last
  uint64_t parts;    // hash of unequal parts
  char name[48];     // cut off, ends with 0

  // Everything 0: all_reduce, fp32, sum. In two parts: for all of it at once compilers take a string
  // instruction, which takes longer than the whole description.
  Descriptor() {
    std::memset(static_cast<void*>(this), 0, sizeof(Descriptor) - sizeof(name));
    std::memset(name, 0, sizeof(name));
  }
  void set_name(std::string_view text);
  void set_shape(std::span<const int64_t> sizes);
  uint64_t fingerprint() const;
  // all_reduce #17 'bucket 2' sum of fp32 [128, 64]. Of any bytes: what is no operation, type or reduction is
  // shown as its number.
  std::string text() const;
  std::string short_text() const;  // "all_reduce 'bucket 0'"
  bool operator==(const Descriptor&) const = default;
};
static_assert(sizeof(Descriptor) == 112 && offsetof(Descriptor, name) == 64);
static_assert(DataType{} == DataType::kFloat32 && ReduceOp{} == ReduceOp::kSum);

// Both sides of a disagreement in one sentence: "rank 2 called X, rank 0 called Y".
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
