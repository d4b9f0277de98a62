// The interface every transport implements. Calls block; QueuedCommunicator (queue/) adds asynchrony,
// argument checks, flight recording and ordering on top.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "yoke/base/deadline.h"
#include "yoke/base/error.h"
#include "yoke/comm/communicator.h"
#include "yoke/comm/operation.h"

namespace yoke::comm {

// One send or receive in flight. `offset` and `state` belong to the backend.
struct Transfer {
  bool is_send = false;
  int peer = 0;
  int tag = 0;
  std::byte* data = nullptr;  // read-only when is_send
  size_t bytes = 0;
  Descriptor descriptor;
  uint64_t fingerprint = 0;
  size_t offset = 0;   // bytes moved so far
  uint64_t state = 0;  // 0 until the backend has started the transfer
};

// The ranks called different operations. The queue reports it as the failure of the job.
struct MismatchError : CommError {
  using CommError::CommError;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const std::string& name() const = 0;

  // Runs one collective to completion. One thread at a time, in the same order on all ranks. Compares
  // descriptors before using data of other ranks. Throws MismatchError if they differ, CommError if a peer is
  // lost, the deadline passes or the job's Failure is set.
  virtual void run(const Operation& operation, Deadline deadline) = 0;

  // Moves what can be moved without blocking; true once the transfer is complete. Of the transfers with the
  // same (peer, tag, direction) only the oldest is advanced. May run concurrently with run(), from one other
  // thread.
  virtual bool advance(Transfer& transfer) = 0;
  // Blocks until one of `transfers` may make progress, wake() is called or the deadline passes.
  virtual void wait_for(std::span<Transfer* const> transfers, Deadline deadline) = 0;
  // Interrupts a wait_for() in another thread. Any thread.
  virtual void wake() = 0;

  // Creates the group of `members` (ranks of this group in their new order; this rank is one of them).
  // Collective over the members; disjoint groups may form concurrently. `group` is unique among all groups of
  // the job.
  virtual std::unique_ptr<Backend> split(std::span<const int> members, uint64_t group, Deadline deadline) = 0;

  // Memory that this backend moves without a copy.
  virtual Memory allocate(size_t bytes) = 0;

  // For backends whose ranks share memory: one rank allocates with make_common() and sends `place` to the
  // others, which map the same memory with open_common(). Freed after its last user. Backends that do not
  // share memory throw CommError.
  struct Place {
    int64_t heap = -1;
    int64_t offset = 0;
  };
  virtual bool shares_memory() const { return false; }
  virtual Memory make_common(size_t bytes, Place& place);
  virtual Memory open_common(const Place& place, size_t bytes);

  virtual Counters counters() const = 0;
};

inline Memory Backend::make_common(size_t, Place&) {
  throw CommError("backend {} does not share memory", name());
}

inline Memory Backend::open_common(const Place&, size_t) {
  throw CommError("backend {} does not share memory", name());
}

}  // namespace yoke::comm
