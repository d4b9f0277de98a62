// What workers, servers and the scheduler tell each other: a closed set.
//
// Ranks of the messenger: workers are 0 .. workers-1, servers follow. The scheduler lives in the first
// server. Heads are plain structs; who sent a message is known from its connection and stands in no head.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "yoke/base/data_type.h"

namespace yoke::ps {

inline constexpr int64_t kMostVersion = int64_t{1} << 52;
inline constexpr int64_t kMostSignal = 64;
// Ranges of a gradient, or of parameters, that one worker has in flight from or to each server.
inline constexpr size_t kPushesAhead = 16;
inline constexpr size_t kPullsAhead = 16;

enum Kind : uint16_t {
  kOpen,      // worker -> server: lay out the parameters (payload: elements of each tensor)
  kAssign,    // worker -> server: one array of a range, at the start
  kPush,      // worker -> server: a gradient's part that belongs to a range
  kPull,      // worker -> server: a range, once it has a version
  kPushPull,  // worker -> server: both at once, outside of updates
  kPushKeys,  // worker -> server: values of some keys (payload: keys, then values)
  kPullKeys,  // worker -> server: values of some keys (payload: keys)
  kJoin,      // worker -> scheduler: wants work
  kFinished,  // worker -> scheduler: has a gradient; the answer says whether it counts
  kSnapshot,  // worker -> scheduler: keep the current version; the answer names it. scheduler -> server
  kFetch,     // worker -> server: one array of a range from the snapshot
  kDrop,      // worker -> server: the snapshot is not needed any more
  kReport,    // worker -> scheduler: what was counted, as JSON
  kAskStop,   // worker -> scheduler: end the run
  kAskLate,   // worker -> server: who has been waited for longest
  kAlive,     // worker -> scheduler: it is busy with something else than its minibatch
  kAwaitEnd,  // worker -> scheduler: answered when all others have ended (payload: bytes, of each)
  kSetDelay,  // worker -> scheduler: turn the dial of bounded_delay or ssp
  kGoodbye,   // worker -> server: leaves in order
  kRelease,   // scheduler -> worker: go on
  kUpdate,    // scheduler -> server: an update was decided (payload: Contributor of each gradient)
  kStop,      // scheduler -> worker, server: there is no more work
  kSquare,    // server -> scheduler: all gradients of an update that is clipped are here
  kClip,      // scheduler -> server: what its gradient is multiplied with
  kKinds,
};

struct OpenHead {
  int64_t elements = 0;
  int64_t range_bytes = 0;
  int64_t align = 1;
  DataType type = DataType::kFloat32;
};
struct OpenReply {
  int64_t ranges = 0;        // of this server
  int64_t state_arrays = 0;  // that its optimizer keeps of each range
};

struct AssignHead {
  int64_t range = 0;
  int64_t array = 0;    // 0: parameters; then the optimizer's
  int64_t version = 0;  // updates that made them
  int64_t steps = 0;    // of the optimizer
};

struct PushHead {
  int64_t range = 0;
  int64_t begin = 0;  // in the whole vector of parameters
  int64_t count = 0;
  int64_t sequence = 0;  // the minibatch; outside of updates the number of this push to this server, from 1
  int64_t update = 0;    // the number of the update it goes into; 0: at once, by itself
  double scale = 1;
  int64_t flags = 0;    // kMeasureFlag, kInOrderFlag
  int64_t settled = 1;  // outside of updates: no number below it is sent again
};
inline constexpr int64_t kMeasureFlag = 1;  // replies to pulls of that version shall tell PullReply::square
inline constexpr int64_t kInOrderFlag = 2;  // gradients of that update are added in the order of workers

struct PullHead {
  int64_t range = 0;
  int64_t begin = 0;
  int64_t count = 0;
  int64_t version = 0;  // at least; waits for it
};
struct PullReply {
  int64_t version = 0;
  // Sum of squares of the range's gradient, before it was clipped, in the update that made this version; -1:
  // it was not measured.
  double square = -1;
};
struct VersionReply {
  int64_t version = 0;
};

// Of one message, where there are `keys` with `each` bytes of values: all of them, or what repetitions make
// of some.
inline size_t most_keys(int64_t keys, size_t each) {
  constexpr size_t kAlwaysBytes = size_t{16} << 20;
  return std::max(static_cast<size_t>(keys), kAlwaysBytes / (each + sizeof(int64_t)));
}
struct KeysHead {
  int64_t keys = 0;
  int64_t width = 1;     // values of a key
  int64_t sequence = 0;  // as in PushHead
  int64_t settled = 1;
};

struct JoinHead {
  int64_t updates = 0;  // the run ends at this version; 0: who else joins knows
};

struct DelayHead {
  int64_t max_delay = 0;
};

struct FinishedHead {
  int64_t version = 0;
  int64_t minibatch = 0;
  double loss = 0;
  double lr = 0;
  double distance2 = -1;  // |w_now - w_then|^2 where it was measured
  int64_t samples = 0;    // that the gradient is of
  float compute_seconds = 0;
  float push_seconds = 0;  // of the minibatch before
  float pull_seconds = 0;
  float unused = 0;
};
struct GrantReply {
  int64_t verdict = 0;  // plan::Verdict
  int64_t update = 0;   // the number of the update it goes into
  int64_t staleness = 0;
  double scale = 1;  // of the gradient
  // 1: the update is of gradients of one version, and clipped as a whole. 0: each is clipped by itself.
  int64_t combined = 0;
  int64_t in_order = 0;  // 1: its parts must carry kInOrderFlag
};

struct ReleaseHead {
  int64_t version = 0;
  int64_t minibatch = 0;
  int64_t gradients = 0;  // that counted so far
  int64_t flags = 0;      // kFetchFlag, kCancelFlag
  int64_t losses = 0;     // of those gradients, as far as they are finite
  double loss_sum = 0;    // and what they add up to
  int64_t samples = 0;    // of all gradients that counted so far
};
inline constexpr int64_t kFetchFlag = 1;
inline constexpr int64_t kCancelFlag = 2;

struct UpdateHead {
  int64_t number = 0;   // from 1, without gaps
  int64_t version = 0;  // after it
  double weight = 0;    // on the sum of its gradients
  double lr = 0;
  double clip_norm = 0;  // of the weighted sum, over all servers; 0: it is not clipped
};
// A gradient that an update consumes.
struct Contributor {
  int64_t worker = 0;
  int64_t minibatch = 0;
  int64_t life = 0;  // of the worker: how often it had been started again
};

struct SquareHead {
  int64_t number = 0;  // of the update
  double square = 0;   // sum of squares of the server's part of the weighted sum
};
struct ClipHead {
  int64_t number = 0;
  double factor = 1;  // 0: the norm is not finite, and parameters stay as they are
};

struct FetchHead {
  int64_t range = 0;
  int64_t array = 0;
  int64_t version = 0;
};
struct FetchReply {
  int64_t steps = 0;
};

struct StopHead {
  int64_t version = 0;
  int64_t signal = 0;  // 0: all updates are done
  int64_t losses = 0;  // as in ReleaseHead
  double loss_sum = 0;
  int64_t gradients = 0;
  int64_t samples = 0;
};

struct LateReply {
  int64_t worker = -1;  // -1: nobody is waited for
  double seconds = 0;   // since its last sign
  int64_t state = 0;    // LateState
};
enum LateState : int64_t {
  kComputes,   // its minibatch
  kNotJoined,  // it has not come yet
  kOwes,       // a gradient that counts and has not come
};

struct GoodbyeHead {
  int64_t peak_memory = 0;  // bytes, of its process or device
};

}  // namespace yoke::ps
