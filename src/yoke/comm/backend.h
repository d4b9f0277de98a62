// What a way of moving data must be able to do. Blocking and simple: QueuedCommunicator (queue/) gives it the
// asynchronous face, the checks, the recorder and the order.
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

// One send or receive under way. The backend keeps its own notes in `offset` and `state`.
struct Transfer {
  bool is_send = false;
  int peer = 0;
  int tag = 0;
  std::byte* data = nullptr;  // not written through when is_send
  size_t bytes = 0;
  Descriptor descriptor;
  uint64_t fingerprint = 0;
  size_t offset = 0;
  uint64_t state = 0;
};

// Ranks disagree about what comes next. The queue turns it into the job's failure.
struct MismatchError : CommError {
  using CommError::CommError;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const std::string& name() const = 0;

  // Carries one collective out. One thread at a time, in the same order on all ranks. Compares descriptors
  // before data of others is used: throws MismatchError. Throws CommError when a peer is lost or the deadline
  // has passed, and at once when the job's Failure is set.
  virtual void run(const Operation& operation, Deadline deadline) = 0;

  // Moves what can be moved now, without waiting; true when the transfer is complete. At most one transfer
  // for each (peer, tag, direction) is advanced at a time, in order of issue. May run beside run(), from
  // another thread; never twice at once.
  virtual bool advance(Transfer& transfer) = 0;
  // Waits until one of them may go on, or the deadline passes, or wake() is called.
  virtual void wait_for(std::span<Transfer* const> transfers, Deadline deadline) = 0;
  // Ends a wait_for() in another thread.
  virtual void wake() = 0;

  // The group of `members` (ranks of this one, in their new order), of which this rank is one. Collective
  // among the members; other groups may form at the same time. `group` differs between all groups of a job.
  virtual std::unique_ptr<Backend> split(std::span<const int> members, uint64_t group, Deadline deadline) = 0;

  virtual Memory allocate(size_t bytes) = 0;

  // Where the ranks can touch each other's memory: one of them makes a piece that all will use, and tells the
  // others its place. Freed when nobody is left that uses it.
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
  throw CommError("backend {} shares no memory", name());
}

inline Memory Backend::open_common(const Place&, size_t) {
  throw CommError("backend {} shares no memory", name());
}

}  // namespace yoke::comm
