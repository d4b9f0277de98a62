// Pipeline schedules as plain data: what each worker does, in order.
//
// The simulator prices the lists, the runtime executes the very same ones. Sends start and return at once;
// receives wait; everything else follows the list.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace yoke::plan {

enum class ScheduleKind : uint8_t {
  kNaive,        // one device at a time: a micro-batch goes forward and back before the next one starts
  kGpipe,        // all forwards, then all backwards
  k1F1B,         // PipeDream-Flush: warm up, one forward one backward, drain
  kPipedream,    // 1F1B without a flush, an update after every backward, weights stashed
  k2BW,          // 1F1B without a flush, an update after every minibatch, two versions of the weights
  kInterleaved,  // 1F1B with several chunks of layers on each device
  kZbH1,         // 1F1B with the backward split into input and weight parts; the latter fill the bubbles
};

const char* to_string(ScheduleKind kind);                   // "naive", "gpipe", "1f1b", …
ScheduleKind parse_schedule_kind(const std::string& name);  // throws ConfigError listing what is accepted

struct ScheduleRequest {
  ScheduleKind kind = ScheduleKind::k1F1B;
  int stages = 1;
  int microbatches = 1;       // of each minibatch
  int minibatches = 1;        // one after the other
  int chunks = 1;             // of layers on each device; interleaved only
  std::vector<int> replicas;  // of each stage; empty: one each
  // pipedream: every stage uses the version that the first one used for the micro-batch.
  bool vertical_sync = false;

  int total() const { return microbatches * minibatches; }
  int virtual_stages() const { return stages * chunks; }
  int replicas_of(int stage) const { return replicas.empty() ? 1 : replicas[static_cast<size_t>(stage)]; }
};

enum class ScheduleOp : uint8_t {
  kForward,
  kBackward,  // where the schedule has kWeight: only the gradient of the input
  kWeight,    // the gradient of the weights
  kSendActivation,
  kReceiveActivation,
  kSendGradient,
  kReceiveGradient,
  kUpdate,  // the replicas of the stage average what they have collected, then apply it
};

const char* to_string(ScheduleOp op);  // "F", "B", "W", "send", "recv", "send_grad", "recv_grad", "update"

struct ScheduleAction {
  ScheduleOp op = ScheduleOp::kForward;
  int microbatch = 0;  // counted through all minibatches; of an update: the last one in it
  int chunk = 0;       // the layers are those of virtual stage chunk x stages + stage
  int version = 0;     // of the weights: updates that were applied to them. An update says which it makes
  int peer = -1;       // worker at the other end of a send or receive
  bool operator==(const ScheduleAction&) const = default;
};

struct ScheduleWorker {
  int stage = 0;
  int replica = 0;
  std::vector<ScheduleAction> actions;
};

struct Schedule {
  ScheduleRequest request;
  std::vector<ScheduleWorker> workers;  // by stage, then replica
};

// Micro-batch b of a minibatch goes to replica b mod r of each stage and back the same way. Throws
// ConfigError for counts below 1, chunks or replicas where the schedule has none, and 2bw with too few
// micro-batches.
Schedule make_schedule(const ScheduleRequest& request);

// Replays the lists without a clock. Throws ConfigError naming worker and action: something done twice,
// never, or by another worker; a message without a partner; workers that wait for each other; weights that
// are not there yet.
void validate(const Schedule& schedule);

// What the lists need in memory, for each worker.
struct Occupancy {
  int peak_activations = 0;  // micro-batches (of a chunk) whose outputs wait for their backward pass
  int versions = 1;          // copies of the weights
};
std::vector<Occupancy> occupancy(const Schedule& schedule);

// One line a worker: "stage 0.0: F0 send0>1 …".
std::string to_string(const Schedule& schedule);

}  // namespace yoke::plan
