// The block of shared memory in which the ranks of a group synchronise.
//
// Every rank writes its own part and reads those of the others. Ranks advance in phases: in phase k each rank
// fills its post (and slot) of parity k & 1 and then stores k in the post. A rank enters phase k + 1 only
// after it has seen k on all others. Nobody is ever two phases ahead, so two posts per rank are enough.
#pragma once

#include <sched.h>

#include "yoke/comm/operation.h"
#include "yoke/comm/shared/address.h"
#include "yoke/comm/shared/futex.h"

namespace yoke::comm::shared {

inline constexpr int kMaxRanks = 64;             // limit of one call of kernels::reduce
inline constexpr size_t kSlotBytes = 256 << 10;  // two per rank; together they fit the L2 cache
inline constexpr size_t kRingBytes = 128 << 10;  // one per ordered pair of ranks
inline constexpr size_t kSharedLine = 128;       // CPUs prefetch cache lines in pairs

// What a rank publishes in a phase: one cache line.
struct alignas(64) Post {
  Word phase;
  uint32_t unused;
  uint64_t fingerprint;
  Location input;
  Location output;
};
static_assert(sizeof(Post) == 64);

struct alignas(kSharedLine) RankBlock {
  Post posts[2];
  Descriptor descriptors[2];
  cpu_set_t cpus;                    // CPU mask
  alignas(kSharedLine) Word active;  // this rank is accessing memory of other ranks right now
  alignas(kSharedLine) Word inbox;   // incremented when a transfer of this rank may make progress
  Word inbox_sleepers;
  alignas(kSharedLine) Word invitations;  // incremented with each group this rank has created
  std::atomic<uint64_t> invited_group;
  Location invited_to;
};

// Frames from one rank to another; see ring.h and transfers.h.
struct alignas(kSharedLine) Ring {
  std::atomic<uint64_t> written;
  alignas(kSharedLine) std::atomic<uint64_t> read;
  alignas(kSharedLine) std::byte data[kRingBytes];
};

struct alignas(kSharedLine) Head {
  Word joined;                                        // ranks that have joined
  Word users;                                         // ranks that have not left
  alignas(kSharedLine) Word sleepers;                 // ranks that sleep until a phase is complete
  Word wakes;                                         // futex, incremented to wake them
  alignas(kSharedLine) std::atomic<uint64_t> claims;  // phase << 32 | next piece of work
  alignas(kSharedLine) Word abandoned;  // 1 + a rank that aborted an operation: the group is unusable
};

// View of the block; its memory must be zero when the group is created.
class Control {
 public:
  Control(std::byte* base, int size) : base_(base), size_(static_cast<size_t>(size)) {}
  static size_t bytes(int size);

  Head& head() const { return *reinterpret_cast<Head*>(base_); }
  RankBlock& rank(int r) const {
    return *reinterpret_cast<RankBlock*>(base_ + ranks_at() + at(r) * sizeof(RankBlock));
  }
  std::byte* slot(int r, uint32_t parity) const {
    return base_ + slots_at() + (2 * at(r) + parity) * kSlotBytes;
  }
  Ring& ring(int from, int to) const {
    return *reinterpret_cast<Ring*>(base_ + rings_at() + (at(from) * size_ + at(to)) * sizeof(Ring));
  }
  int size() const { return static_cast<int>(size_); }

 private:
  static size_t at(int r) { return static_cast<size_t>(r); }
  size_t ranks_at() const { return sizeof(Head); }
  size_t slots_at() const { return (ranks_at() + size_ * sizeof(RankBlock) + 4095) / 4096 * 4096; }
  size_t rings_at() const { return slots_at() + 2 * size_ * kSlotBytes; }

  std::byte* base_;
  size_t size_;
};

inline size_t Control::bytes(int size) {
  Control empty(nullptr, size);
  return empty.rings_at() + empty.size_ * empty.size_ * sizeof(Ring);
}

}  // namespace yoke::comm::shared
