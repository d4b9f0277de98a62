// The messages between workers, servers and the scheduler: a closed set.
//
// Ranks of the messenger: workers are 0 .. workers-1, servers follow. The scheduler is part of the first
// server. Heads are plain structs; the sender is known from the connection and is not part of any head.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "yoke/base/data_type.h"
#include "yoke/comm/messenger.h"
#include "yoke/ps/succession.h"

namespace yoke::ps {

inline constexpr int64_t kMostVersion = int64_t{1} << 52;
inline constexpr int64_t kMostSignal = 64;
// Ranges that one worker has in flight to or from each server.
inline constexpr size_t kPushesAhead = 16;
inline constexpr size_t kPullsAhead = 16;
// The same while the worker computes: fewer, because what an earlier layer needs waits behind them.
inline constexpr size_t kRangesAhead = 6;

enum Kind : uint16_t {
  kOpen,      // worker -> server: allocate the parameters (payload: elements of each tensor)
  kAssign,    // worker -> server: one array of a range, at the start
  kPush,      // worker -> server: the part of a gradient that belongs to a range
  kPull,      // worker -> server: a range, once it has reached a version
  kPushPull,  // worker -> server: both at once, outside of updates
  kPushKeys,  // worker -> server: values of some keys (payload: keys, then values)
  kPullKeys,  // worker -> server: values of some keys (payload: keys)
  kJoin,      // worker -> scheduler: requests work
  kFinished,  // worker -> scheduler: has a gradient; the reply says whether it counts
  kSnapshot,  // worker -> scheduler: keep the current version; the reply names it. scheduler -> server
  kFetch,     // worker -> server: one array of a range from the snapshot
  kDrop,      // worker -> server: release the snapshot
  kReport,    // worker -> scheduler: statistics, as JSON
  kAskTime,   // worker -> server: its times and bytes (ServerTime)
  kAskStop,   // worker -> scheduler: end the run
  kAskLate,   // worker -> server: which worker has been waited for longest
  kAlive,     // worker -> scheduler: busy with something other than a minibatch
  kAwaitEnd,  // worker -> scheduler: replied when all others have ended (payload: WorkerEnd of each)
  kDepart,    // worker -> scheduler: would like to leave; refused, or told kStop after its gradient
  kSetDelay,  // worker -> scheduler: set the maximum delay of bounded_delay or ssp
  kGoodbye,   // worker -> server: leaves normally (payload: WorkerEnd, or none)
  kRelease,   // scheduler -> worker: a version and a minibatch to compute
  kUpdate,    // scheduler -> server: an update was decided (payload: Contributor of each gradient)
  kStop,      // scheduler -> worker, server: no more work
  kSquare,    // server -> scheduler: sum of squares of an update to be clipped
  kClip,      // scheduler -> server: clipping factor of an update
  kEntry,     // server -> server: a change of ranges that both hold (ps/entries.h); replied when it is safe
  kLeave,     // server -> server: leaves while training continues
  kCopy,      // server -> server: a part of a copy that is made anew (server_copies.cpp)
  kWelcome,   // server of the scheduler -> server that joins: what it has to know (server_welcome.cpp)
  kAskGone,   // server -> first worker: whether a server that it has lost is lost (server_fence.cpp)
  kHello,     // server that has joined -> worker: replied
  kMove,      // server -> server: a part of a move of a home (server_move.cpp)
  kMoved,     // server -> worker, server: a home has moved; also the reply to a request that comes too late
  // Sparse tables (ps/sparse/messages.h), all worker -> server:
  kOpenTable,    // create a table, or check that it is the same
  kAssignTable,  // one array of some rows, at the start (payload: keys, values)
  kPushTable,    // gradients of some rows (payload: keys, values)
  kPullTable,    // values of some rows, once they have reached a version (payload: keys)
  kFetchTable,   // rows in a range of keys, of the snapshot or as they are
  kPushRound,    // this worker's part of a round: gradients of rows in a range of keys, at one time
  kPullRound,    // values of some rows, once the round of their range was applied (payload: keys)
  // Vectors of L-BFGS (ps/sandblaster/messages.h):
  kOpenVectors,    // worker -> server: allocate the vectors (payload: elements of each tensor)
  kAssignVector,   // worker -> server: a range of a vector, at the start
  kPullVector,     // worker -> server: a range of a vector
  kPushPortion,    // worker -> server: a range of the gradient of a portion of the batch
  kAskPortion,     // worker -> coordinator: has computed a portion, requests the next
  kAssignNumbers,  // worker -> coordinator: the numbers of a checkpoint
  kFetchNumbers,   // worker -> coordinator: the same
  kCount,          // worker -> coordinator: statistics, as JSON
  kCommand,        // coordinator -> server: an operation on vectors; the reply is a number
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
  int64_t state_arrays = 0;  // of its optimizer, per range
};

struct AssignHead {
  int64_t range = 0;
  int64_t array = 0;    // 0: parameters; then the optimizer's
  int64_t version = 0;  // number of updates so far
  int64_t steps = 0;    // of the optimizer
};

struct PushHead {
  int64_t range = 0;
  int64_t begin = 0;  // element of the whole parameter vector
  int64_t count = 0;
  int64_t sequence = 0;  // minibatch; outside of updates: number of this push to this server, from 1
  int64_t update = 0;    // number of the update it belongs to; 0: apply immediately
  double scale = 1;
  int64_t flags = 0;    // kMeasureFlag, kInOrderFlag; the encoding, in updates
  int64_t settled = 1;  // outside of updates: lower numbers are never sent again
};
inline constexpr int64_t kMeasureFlag = 1;  // report PullReply::square for the version this update makes
inline constexpr int64_t kInOrderFlag = 2;  // add the gradients of this update in worker order
inline constexpr int kEncodingShift = 8;    // the bits from here on: Encoding of the payload (ps/packing.h)

struct PullHead {
  int64_t range = 0;
  int64_t begin = 0;
  int64_t count = 0;
  int64_t version = 0;  // minimum; the reply waits for it
};
struct PullReply {
  int64_t version = 0;
  // Sum of squares of the range's gradient, before clipping, in the update that made this version; -1: not
  // measured.
  double square = -1;
};
struct VersionReply {
  int64_t version = 0;
};

// Maximum number of keys per message, given `keys` keys of `each` bytes: all of them, or 16 MB worth of
// repetitions.
inline size_t most_keys(int64_t keys, size_t each) {
  constexpr size_t kAlwaysBytes = size_t{16} << 20;
  return std::max(static_cast<size_t>(keys), kAlwaysBytes / (each + sizeof(int64_t)));
}
struct KeysHead {
  int64_t keys = 0;
  int64_t width = 1;     // values per key
  int64_t sequence = 0;  // as in PushHead
  int64_t settled = 1;
};

// The loss scale of fp16, where all workers have the same.
struct ScaleHead {
  float scale = 0;      // 0: losses are not scaled, or each worker has its own
  int32_t tracker = 0;  // kernels::LossScale
};

struct JoinHead {
  int64_t updates = 0;  // the run ends at this version; 0: another worker says
  ScaleHead scale{};    // likewise
};

struct DelayHead {
  int64_t max_delay = 0;
};

struct FinishedHead {
  int64_t version = 0;
  int64_t minibatch = 0;
  double loss = 0;
  double lr = 0;
  double distance2 = -1;  // |w_now - w_then|^2; negative: not measured
  int64_t samples = 0;    // number of samples in the gradient
  float compute_seconds = 0;
  float push_seconds = 0;  // of the previous minibatch
  float pull_seconds = 0;
  int32_t overflow = 0;  // 1: it is not finite in fp16. Zeros are pushed, and the update is skipped
};
struct GrantReply {
  int64_t verdict = 0;  // plan::Verdict
  int64_t update = 0;   // number of the update it belongs to
  int64_t staleness = 0;
  double scale = 1;  // factor for the gradient
  // 1: the update consumes gradients of one version and is clipped as a whole. 0: each gradient is clipped by
  // itself.
  int64_t combined = 0;
  int64_t in_order = 0;  // 1: its parts must carry kInOrderFlag
};

struct ReleaseHead {
  int64_t version = 0;
  int64_t minibatch = 0;
  int64_t gradients = 0;  // accepted so far
  int64_t flags = 0;      // kFetchFlag, kCancelFlag, kSkippedFlag; number of the batch
  int64_t losses = 0;     // number of finite losses among them
  double loss_sum = 0;    // sum of those losses
  int64_t samples = 0;    // in all accepted gradients
  ScaleHead scale{};      // of the minibatch
  // Where batches are handed out (ps/batch_order.h).
  int64_t batch() const;
};
inline constexpr int64_t kFetchFlag = 1;
inline constexpr int64_t kCancelFlag = 2;
inline constexpr int64_t kSkippedFlag = 4;  // the last update was skipped
inline constexpr int kBatchShift = 8;       // the bits from here on
inline int64_t ReleaseHead::batch() const {
  return flags >> kBatchShift;
}

struct UpdateHead {
  int64_t number = 0;   // from 1, consecutive
  int64_t version = 0;  // after the update
  double weight = 0;    // factor for the sum of its gradients
  double lr = 0;
  double clip_norm = 0;  // limit for the norm of the weighted sum over all servers; 0: no clipping
  int64_t skips = 0;     // 1: a gradient has overflowed; the parameters and the optimizer's state stay
};
// A gradient consumed by an update.
struct Contributor {
  int64_t worker = 0;
  int64_t minibatch = 0;
  int64_t life = 0;  // of the worker: restart count
};

struct SquareHead {
  int64_t number = 0;  // of the update
  double square = 0;   // sum of squares of the weighted sum, of the ranges of one server
  int64_t home = 0;    // that server
};
struct ClipHead {
  int64_t number = 0;
  double factor = 1;  // 0: the norm is not finite, parameters are not changed
};

struct EntryHead {
  int64_t home = 0;    // whose ranges are concerned
  int64_t number = 0;  // from 1, consecutive for each home
};

struct CopyHead {
  enum What : int64_t { kAsk, kBegin, kRange, kEnd, kTables, kRows };
  int64_t home = 0;    // whose ranges are copied
  int64_t number = 0;  // kBegin: of the last entry before the copy
  int64_t what = kAsk;
  int64_t range = -1;  // kRange
};
struct CopyReply {
  int64_t complete = 0;  // 1: it has a copy
};

struct MoveHead {
  enum What : int64_t { kOrder, kBegin, kFilled, kCommit, kClaim, kGiveUp };
  int64_t what = kOrder;
  Succession::Move move;
};

struct AskGoneHead {
  int64_t server = 0;
};
struct GoneReply {
  enum Verdict : int64_t {
    kGone,  // the worker has lost it, too
    kWait,  // it may be alive: ask again
    kEnd,   // it has lost the asker, and stays; the asker is to end
  };
  int64_t verdict = kGone;
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
  ScaleHead scale{};
  int64_t skipped = 0;  // 1: the last update
};

struct LateReply {
  int64_t worker = -1;  // -1: no worker is waited for
  double seconds = 0;   // since its last sign of life
  int64_t state = 0;    // LateState
};
enum LateState : int64_t {
  kComputes,   // a minibatch
  kNotJoined,  // has not joined
  kOwes,       // an accepted gradient that has not arrived
};

template <class Head>
comm::Message message_with(uint16_t kind, const Head& head, std::span<const std::byte> payload = {}) {
  comm::Message message;
  message.kind = kind;
  message.set_head(head);
  message.payload = payload;
  return message;
}

}  // namespace yoke::ps
