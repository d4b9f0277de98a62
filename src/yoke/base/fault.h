// Fault injection at named points, in the program as shipped. One relaxed load per point while nothing is
// armed.
//
//   YOKE_FAULT="rank=2,step=7,at=ddp.bucket.sent:kill; at=frame.send,p=0.01:drop"
//
// A rule is `CONDITION,CONDITION,…:ACTION`. Conditions: at=POINT (required), rank=N or *, step=N (of
// training), attempt=N (restarts of the job so far), hit=N (the Nth time all others hold, from 1), p=CHANCE
// and seed=N (for its random draws). Actions: kill, stop (SIGKILL and SIGSTOP to itself), delay:TIME, error,
// at some points drop (omit) and corrupt (flip a bit), and at one the lies flip, scale, noise and drift.
//
// Rules refer to ranks. The launcher has none: at its points (launcher.*, coordinator.*) `rank` is the rank
// being served.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace yoke::fault {

enum class Point : uint8_t {
  kDdpBucketSent,
  kCollectiveBegin,
  kFrameSend,
  kFrameReceive,
  kShmWrite,
  kCoordinatorReply,
  kSessionHeartbeat,
  kCheckpointWrite,
  kCheckpointCommit,
  kPsPush,
  kPsPull,
  kPsServerUpdate,
  kPsReplicate,
  kPsReplicated,
  kPsCopy,
  kPsLeave,
  kPsHandOver,
  kPsClaim,
  kPsTakeCopy,
  kPsJoin,
  kPsGoodbye,
  kLauncherSpawn,
  kPipelineSend,
  kCollabHello,
  kCollabJoined,
  kCollabLease,
  kCollabGradient,
  kElasticCopy,
  kElasticRebuild,
  kElasticState,
  kMetricsRecord,
};

// What the caller must do; kill, stop, delay and most errors have happened when at() returns.
enum class Effect : uint8_t { kNone, kDrop, kCorrupt, kError, kFlip, kScale, kNoise, kDrift };

// What a point supports besides kill, stop, delay and error.
enum Can : unsigned {
  kDrops = 1,
  kCorrupts = 2,
  kOwnError = 4,  // `error` is the caller's own (a full disk); otherwise at() throws CommError
  kServes = 8,    // `rank` is the one being served by the launcher or coordinator
  kLies = 16,     // flip, scale, noise and drift of a gradient (collab/falsify.h)
};

struct PointInfo {
  Point point;
  const char* name;  // "ddp.bucket.sent"
  const char* when;  // "a bucket of gradients was handed to the communicator"
  unsigned can = 0;
};
std::span<const PointInfo> points();
// All points with what they support, one per line, for `yoke doctor --faults`.
std::string list_points();

enum class Action : uint8_t { kKill, kStop, kDelay, kError, kDrop, kCorrupt, kFlip, kScale, kNoise, kDrift };

struct Rule {
  Point at = Point::kFrameSend;
  int rank = -1;      // -1: any
  int attempt = -1;   // -1: any
  int64_t step = -1;  // -1: any
  int64_t hit = 0;    // 0: every
  double chance = 1;
  uint64_t seed = 0;
  Action action = Action::kError;
  double delay = 0;  // seconds
};

// Throws ConfigError that names the unknown word and lists what is accepted.
std::vector<Rule> parse(const std::string& text);

// Identity of this process; rank -1: a launcher.
struct Place {
  int rank = 0;
  int attempt = 0;
};
// Process-wide; replaces previous rules. Draws depend on seed, rank and rule only.
void arm(std::vector<Rule> rules, Place place);
void disarm();
// Sets the current training step; any thread.
void set_step(int64_t step);

namespace detail {
extern std::atomic<bool> armed;
Effect hit(Point point, int served);
}  // namespace detail

// `served`: the rank being served by the launcher or coordinator. Throws CommError for `error`, unless it is
// the caller's own.
inline Effect at(Point point, int served = -1) {
  if (!detail::armed.load(std::memory_order_relaxed)) [[likely]]
    return Effect::kNone;
  return detail::hit(point, served);
}

}  // namespace yoke::fault
