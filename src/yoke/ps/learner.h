// The worker side of training with parameter servers.
//
//   while (learner.wait()) {                      // the scheduler assigns work, or ends the run
//     if (!learner.pull(parameters)) continue;    // cancelled meanwhile: there is newer work
//     … compute; stop when learner.cancelled() …
//     learner.push({gradient, loss, lr});
//   }
//
// With overlap, ranges move while the worker computes (learner_overlap.cpp). They are numbered from 0 as in
// ranges(), in the order in which the model uses them:
//
//   while (learner.wait()) {
//     learner.begin_pull(parameters);
//     … before a layer: learner.await_range(i) for each of its ranges …
//     if (!learner.end_pull()) continue;          // cancelled meanwhile
//     learner.begin_push({gradient, loss, lr}, parameters);
//     … in backward: learner.push_range(i) when the gradient of range i is complete …
//     learner.end_push();
//   }
//
// One thread, except for cancelled(). Throws CommError (with its name) if a server is lost and no copy of its
// ranges is left, or if it refuses a request, and LateWorker if a worker that others wait for is silent for
// LearnerOptions::timeout.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "yoke/comm/messenger.h"
#include "yoke/ps/accounting.h"
#include "yoke/ps/flight.h"
#include "yoke/ps/messages.h"
#include "yoke/ps/packing.h"
#include "yoke/ps/replica_ranks.h"
#include "yoke/ps/server_view.h"
#include "yoke/ps/sharding.h"
#include "yoke/ps/worker_end.h"

namespace yoke::ps {

// Where a worker is a replica in parts: one of its ranks. Each moves the elements of its own part; the first
// one talks to the scheduler, and all go by what it was told.
struct ReplicaLinks {
  int part = 0;
  int parts = 1;
  int64_t begin = 0, end = 0;  // elements of this part, in the vector of the whole model
  // Both collective over the ranks of the replica: sums over them, in place; what the first one has, on all.
  std::function<void(std::span<double>)> sum;
  std::function<void(std::span<std::byte>)> from_first;
  // One of these ranks is lost. On the messenger's thread; may be empty.
  std::function<void(const std::string& why)> lost;
};

struct LearnerOptions {
  int workers = 1;           // with places for those that join
  int workers_at_start = 0;  // 0: all
  int servers = 1;
  int at_start = 0;                     // as in ServerOptions
  int replicas = 0;                     // of the servers: copies of each range
  std::vector<std::string> machines{};  // as in ServerOptions
  // Elements of each, in the order in which the model uses them; a 0 ends the part of a rank.
  std::vector<int64_t> tensors;
  DataType type = DataType::kFloat32;
  int64_t range_bytes = 256 << 10;
  // Seconds without a reply, or without a sign of life of a worker that others wait for
  double timeout = 300;
  bool one_version = false;       // all ranges must have exactly the assigned version
  bool measure_distance = false;  // measure how far the parameters have moved since they were pulled
  ReplicaRanks ranks{};           // ranks of the job, for messages; by default each worker is a rank
  std::optional<ReplicaLinks> replica{};
  Packing packing{};  // of pushed gradients
};

struct Gradient {
  const void* data = nullptr;  // the whole vector, or this rank's part of it
  double loss = 0;
  double lr = 0;
  double compute_seconds = 0;
  double clip = 1;       // own clipping factor, used if the update is not clipped as a whole
  bool measure = false;  // request update_norm(), available if the update consumes gradients of one version
  bool known_finite = false;  // skip the check for NaN and infinity
  int64_t samples = 0;        // number of samples in it
  bool overflow = false;      // it has overflowed fp16 and is zeros: the update that it belongs to is skipped
  // Called once the scheduler has accepted it, with the factor for the gradient: pushes what is in sparse
  // tables, for work().minibatch. May be empty.
  std::function<void(double scale, bool measure)> also{};
};

// Norm of the gradient of an update, before clipping.
struct UpdateNorm {
  double norm = 0;
  int64_t first_bad = -1;  // first element of the first range with a non-finite part; -1: none
};

class LateWorker : public CommError {
 public:
  LateWorker(int worker, const std::string& text) : CommError("{}", text), worker_(worker) {}
  int worker() const { return worker_; }

 private:
  int worker_;
};

class Learner {
 public:
  // Registers its handlers: create it before the first request of the messenger.
  Learner(comm::Messenger& messenger, LearnerOptions options);
  ~Learner();  // leaves, unless goodbye() or abandon() was called

  const Sharding& sharding() const { return sharding_; }
  // Elements that this rank updates: the size of all vectors below.
  int64_t elements() const { return end_ - begin_; }
  // Whether this rank acts for its worker: only it calls ask_stop(), report(), await_end() and the like.
  bool leads() const { return !options_.replica || options_.replica->part == 0; }
  // Where the servers are; it follows their changes as long as this object lives.
  const std::shared_ptr<ServerView>& servers() const { return servers_; }
  // Number of state arrays of the servers' optimizer.
  int64_t state_arrays() const { return state_arrays_; }

  // Sets the initial state, called by one worker: array 0 is the parameters, the following are the
  // optimizer's; each is the whole vector.
  void assign(int64_t array, const void* data, int64_t version, int64_t steps);
  // Work is assigned once all workers have joined, so the worker that calls assign() must join last.
  // One of the workers passes the number of updates of the run and, where all have the same, the loss scale
  // to begin with: work() and end() tell it from then on.
  void join(int64_t updates = 0, const ScaleHead& scale = {});

  // Waits for newer work than the current one. False: the run has ended.
  bool wait();
  // Sends a sign of life during long activities other than a minibatch. Cheap: at most once per second.
  void say_alive();
  const ReleaseHead& work() const { return work_; }
  bool ended() const;
  StopHead end() const;  // requires ended()

  // For requests of others that timed out: asks all servers which worker they wait for, and how long. Throws
  // LateWorker if that is too long, CommError if they wait for nobody and nothing moves. Returns the longest
  // silence in seconds.
  double check_late();

  // Whether the current work is void, by an update or the end of the run. Any thread.
  bool cancelled() const { return inbox_->latest.load(std::memory_order_acquire) != work_.minibatch; }
  // False: cancelled before the time was over.
  bool sleep(double seconds);

  // Updates `parameters` (the whole vector) to the version of the current work, first ranges first. False:
  // cancelled meanwhile.
  bool pull(void* parameters);
  // Pulls all ranges at this version or later. Requires that the version was decided.
  void pull_at(int64_t version, void* parameters);
  // Pulls the newest version of each range.
  void pull_newest(void* parameters) { pull_at(0, parameters); }
  // Asks the scheduler whether the gradient counts, and pushes it if so. False: it was cancelled. Throws
  // ConfigError for non-finite values before anything is sent.
  bool push(const Gradient& gradient);
  bool is_finite(const void* gradient) const;
  // Of the update that produced the version pulled last, if it was measured.
  const std::optional<UpdateNorm>& update_norm() const { return update_norm_; }

  // ---- Overlap. Not for a replica in parts ----

  // Ranges that this rank moves.
  size_t ranges() const { return own_.size(); }
  const Range& range(size_t index) const { return own_range(index); }
  // Starts to bring `parameters` to the version of the current work. At most kRangesAhead ranges per server
  // are in flight. No effect where a push has started it already.
  void begin_pull(void* parameters);
  // Returns once this range has arrived.
  void await_range(size_t index);
  // Returns once everything begun has ended: all ranges have arrived, and the gradient before them was
  // accepted. The result is that of pull(). Without begin_pull(): at once.
  bool end_pull();
  // Whether end_pull() would return at once.
  bool has_arrived();
  // Announces the gradient of the current work, also while it is being computed; `data` is filled range by
  // range and stays untouched until end_pull(). Each range returns to `parameters` (null: not) as soon as its
  // update is applied and the scheduler has assigned the next work. Incomplete gradients only under rules
  // whose updates consume one of every worker: under others, workers would wait for this one to complete it.
  // Requires end_pull() before.
  void begin_push(const Gradient& gradient, void* parameters);
  // The gradient of this range is complete. False: it is not finite and was not sent.
  bool push_range(size_t index);
  // Returns once the scheduler has answered. False: the gradient does not count, and nothing was sent.
  // Requires push_range() for all ranges before the next end_pull().
  bool end_push();
  // Between begin_push() and end_push(): the current work cannot be cancelled.
  bool is_pushing() const { return pushing_; }
  // When ranges were in flight last: from the announcement, or from begin_pull(), to the last arrival.
  struct Span {
    double begin = 0, end = 0;  // now_seconds()
  };
  Span last_flight() const;

  // Fetches a consistent snapshot of all servers into `arrays` (parameters, then optimizer state; whole
  // vectors). One worker at a time.
  struct State {
    int64_t version = 0;
    int64_t steps = 0;
  };
  // `also`: fetches more of the same snapshot; may be empty.
  State fetch_state(const std::vector<void*>& arrays, const std::function<void(int64_t version)>& also = {});

  std::string report();                                   // of the scheduler, as JSON
  std::vector<std::optional<ServerTime>> server_times();  // by server; empty: it is lost or not there
  void ask_stop(int64_t signal);
  // Asks to leave: the run ends, for this worker, after the current gradient. Throws CommError with the
  // reason why it cannot.
  void ask_to_leave();
  // Changes the maximum delay of bounded_delay or ssp for all workers immediately. Throws CommError if the
  // rule has none.
  void set_max_delay(int64_t max_delay);
  // Blocks until all other workers have left or are lost. Returns what each told with its goodbye, zeros
  // of those that said none. Throws LateWorker after the timeout.
  std::vector<WorkerEnd> await_end();
  void goodbye(const WorkerEnd& end = {});
  // Skips goodbye(): the messenger ends, or has ended.
  void abandon() { said_goodbye_ = true; }

  // Of gradients and parameters, by this rank, so far.
  int64_t bytes_pushed() const { return bytes_pushed_; }
  int64_t bytes_pulled() const { return bytes_pulled_; }

  // Seconds of the last minibatch.
  double push_seconds() const { return push_seconds_; }
  double pull_seconds() const { return pull_seconds_; }
  double idle_seconds() const { return idle_seconds_; }

 private:
  void open();
  struct Told {
    bool ended = false;
    ReleaseHead work;
    StopHead stop;
  };
  Told await_news();
  template <class Value>
  void take_from_first(Value& value);
  double sum_over_parts(double own);
  std::vector<double> of_all_parts(double own);
  const Range& own_range(size_t index) const { return sharding_.ranges()[own_[index]]; }
  void listen();
  void fetch_snapshot(const std::vector<void*>& arrays, State& state);
  comm::Message ask_scheduler(const comm::Message& message, std::span<std::byte> into = {});
  FlightPlan plan_of(size_t requests);
  std::byte* at(void* vector, const Range& range) const;
  const std::byte* at(const void* vector, const Range& range) const;
  size_t bytes_of(const Range& range) const;
  bool fetch(int64_t version, void* parameters);
  FlightPlan pull_plan(int64_t version, void* parameters, std::vector<PullReply>& replies);
  bool take_replies(int64_t version, const std::vector<PullReply>& replies);
  void pack_range(size_t index, const Gradient& gradient);
  void count_pushed();
  FlightPlan push_plan(const Gradient& gradient, const GrantReply& grant);
  comm::Message finished_message(const Gradient& gradient, double distance2) const;
  double distance_to_newest();
  GrantReply announce(const Gradient& gradient, double distance2);
  static bool counts(const GrantReply& grant);
  int first_server() const { return options_.workers; }
  int rank_of(const Range& range) const { return servers_->peer_of(range.server); }

  comm::Messenger& messenger_;
  LearnerOptions options_;
  std::shared_ptr<ServerView> servers_;  // of the messenger's thread, too
  Sharding sharding_;
  int64_t begin_ = 0, end_ = 0;  // elements of this rank
  std::vector<size_t> own_;      // and their ranges
  size_t element_;
  int64_t state_arrays_ = 0;
  int64_t bytes_pushed_ = 0, bytes_pulled_ = 0;

  // Written by the messenger's thread, which may outlive the learner.
  struct Inbox {
    std::mutex mutex;
    std::condition_variable changed;
    ReleaseHead newest;
    std::optional<StopHead> stop;
    std::string lost;                                  // a server; reason
    bool leaving = false;                              // servers end, too: that is no loss
    std::atomic<int64_t> latest{-1};                   // minibatch of `newest`; -2: the run has ended
    std::function<void(const ReleaseHead&)> released;  // may be empty
    void told(const comm::Message& message);
  };
  std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();
  ReleaseHead work_;           // current work
  int64_t held_version_ = -1;  // version of the parameters, if all ranges have the same; else -1
  void* held_ = nullptr;       // where they were pulled to
  std::vector<std::byte> scratch_;
  std::vector<Packed> packed_;       // by range: the gradient that is pushed, if options_.packing is active
  std::vector<std::byte> left_out_;  // of earlier gradients; empty: nothing yet
  class Overlap;
  struct OverlapDeleter {
    void operator()(Overlap* overlap) const;
  };
  Overlap& overlap();
  std::unique_ptr<Overlap, OverlapDeleter> overlap_;  // made by its first use
  bool pushing_ = false;
  bool first_of_push_ = false;  // no range of it is complete
  Gradient gradient_;           // being pushed
  std::optional<UpdateNorm> update_norm_;
  bool said_goodbye_ = false;
  double said_alive_ = 0;
  double push_seconds_ = 0, pull_seconds_ = 0, idle_seconds_ = 0;
};

}  // namespace yoke::ps
