// What workers, servers and the scheduler tell each other: a closed set.
//
// Ranks of the messenger: workers are 0 .. workers-1, servers follow. The scheduler lives in the first
// server. Heads are plain structs; who sent a message is known from its connection and stands in no head.
#pragma once

#include <cstdint>

#include "yoke/base/data_type.h"

namespace yoke::ps {

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
  kSetDelay,  // worker -> scheduler: turn the dial of bounded_delay or ssp
  kGoodbye,   // worker -> server: leaves in order
  kRelease,   // scheduler -> worker: go on
  kUpdate,    // scheduler -> server: an update was decided (payload: Contributor of each gradient)
  kStop,      // scheduler -> worker: there is no more work
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
  int64_t sequence = 0;  // the minibatch; outside of updates a number that grows with each push of the worker
  int64_t update = 0;    // the number of the update it goes into; 0: at once, by itself
  double scale = 1;
  int64_t measure = 0;  // 1: replies to pulls of that update's version shall tell PullReply::square
};

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

struct KeysHead {
  int64_t keys = 0;
  int64_t width = 1;  // values of a key
  int64_t sequence = 0;
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
  double compute_seconds = 0;
  double push_seconds = 0;  // of the minibatch before
  double pull_seconds = 0;
  double distance2 = -1;  // |w_now - w_then|^2 where it was measured
};
struct GrantReply {
  int64_t verdict = 0;  // plan::Verdict
  int64_t update = 0;   // the number of the update it goes into
  int64_t staleness = 0;
  double scale = 1;  // of the gradient
  // 1: the update is of gradients of one version, and clipped as a whole. 0: each is clipped by itself.
  int64_t combined = 0;
};

struct ReleaseHead {
  int64_t version = 0;
  int64_t minibatch = 0;
  int64_t gradients = 0;  // that counted so far
  int64_t flags = 0;      // kFetchFlag, kCancelFlag
  int64_t losses = 0;     // of those gradients, as far as they are finite
  double loss_sum = 0;    // and what they add up to
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
};

}  // namespace yoke::ps
