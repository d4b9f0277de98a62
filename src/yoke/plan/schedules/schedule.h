// Pipeline schedules as plain data: the actions of each worker, in order.
//
// The simulator prices the lists, the runtime executes the same ones. Sends are asynchronous; receives block;
// everything else runs in list order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace yoke::plan {

enum class ScheduleKind : uint8_t {
  kNaive,        // one device at a time: a micro-batch goes forward and back before the next one starts
  kGpipe,        // all forwards, then all backwards in reverse order
  k1F1B,         // PipeDream-Flush: warm up, one forward one backward, drain
  kPipedream,    // 1F1B without a flush, an update after every backward, stashed weights
  k2BW,          // 1F1B without a flush, an update after every minibatch, two weight versions
  kInterleaved,  // 1F1B with several chunks of layers per device
  kZbH1,         // 1F1B with the backward split into input and weight parts; the latter fill the bubbles
};

const char* to_string(ScheduleKind kind);                   // "naive", "gpipe", "1f1b", …
ScheduleKind parse_schedule_kind(const std::string& name);  // throws ConfigError listing what is accepted

struct ScheduleRequest {
  ScheduleKind kind = ScheduleKind::k1F1B;
  int stages = 1;
  int microbatches = 1;       // per minibatch
  int minibatches = 1;        // consecutive
  int chunks = 1;             // of layers per device; interleaved only
  std::vector<int> replicas;  // of each stage; empty: one each
  // pipedream: every stage uses the version that the first stage used for the micro-batch.
  bool vertical_sync = false;

  int total() const { return microbatches * minibatches; }
  int virtual_stages() const { return stages * chunks; }
  int replicas_of(int stage) const { return replicas.empty() ? 1 : replicas[static_cast<size_t>(stage)]; }
};

enum class ScheduleOp : uint8_t {
  kForward,
  kBackward,  // only the gradient of the input, if the schedule has kWeight
  kWeight,    // gradient of the weights
  kSendActivation,
  kReceiveActivation,
  kSendGradient,
  kReceiveGradient,
  kUpdate,  // the replicas of the stage average their gradients, then apply them
};

const char* to_string(ScheduleOp op);  // "F", "B", "W", "send", "recv", "send_grad", "recv_grad", "update"

struct ScheduleAction {
  ScheduleOp op = ScheduleOp::kForward;
  int microbatch = 0;  // counted over all minibatches; of an update: the last one in it
  int chunk = 0;       // the layers are those of virtual stage chunk * stages + stage
  int version = 0;     // of the weights: updates applied to them. For an update: the version it produces
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

// Micro-batch b (counted within its minibatch; for pipedream over the whole run) goes to replica b mod r of
// each stage, and back the same way. Throws ConfigError for counts below 1, chunks or replicas that the
// schedule does not support, and 2bw with too few micro-batches.
Schedule make_schedule(const ScheduleRequest& request);

// Replays the lists without a clock. Throws ConfigError naming worker and action: something done twice,
// never, or by the wrong worker; an unmatched message; a deadlock; weights that do not exist yet.
void validate(const Schedule& schedule);

// Memory requirements of each worker's list.
struct Occupancy {
  int peak_activations = 0;  // micro-batches (of a chunk) whose outputs wait for their backward pass
  int versions = 1;          // of the weights
};
std::vector<Occupancy> occupancy(const Schedule& schedule);

// One line per worker: "stage 0.0: F0 send0>1 …".
std::string to_string(const Schedule& schedule);

}  // namespace yoke::plan
