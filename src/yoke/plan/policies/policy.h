// Decides when a parameter server updates, who may go on, and whose work is void.
//
// A state machine without I/O, clocks or threads: events in, a decision out. The server and the simulator run
// this same code; equal events give equal decisions. It never sees parameters: the caller keeps them, with
// one accumulator, and does what the decision says, in this order:
//
//   1. verdict kAccepted: add the gradient to the accumulator. Anything else: do not.
//   2. update: parameters -= step x update.weight x accumulator; clear the accumulator.
//   3. releases: send parameters of `version` (or word that they have not changed) to `worker`, who starts on
//      `minibatch`; `cancels` tells it to abandon what it computes. Its gradient, should it be on its way, is
//      refused as kCancelled.
//
// Each worker has at most one minibatch. Pushing a gradient is asking for the next one; so is joining.
//
// Workers that come and go: a worker that joins, or joins again, starts at once on the current version (but
// nobody before PolicyOptions::workers have come), with the clock of the slowest; under a delay of 0 it waits
// for the next round, in which all are averaged. What a lost worker had pushed counts;
// what it was computing is void, and the others go on without it. In the rules in which workers wait (sync,
// k_sync, k_async) K is bounded by what can still arrive: gradients at hand plus workers that compute. The
// batch rules get their K minibatches from however few are left.
//
// An event costs O(1), amortised, plus the releases it causes. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "yoke/plan/policies/rule.h"

namespace yoke::plan {

// A gradient's tags: what its worker was released with.
struct GradientTags {
  int worker = 0;
  int64_t version = 0;
  int64_t minibatch = 0;
};

enum class Verdict : uint8_t {
  kNone,       // the event was no gradient
  kAccepted,   // counts
  kCancelled,  // its minibatch was cancelled by an update, or its worker had left: drop it
  kDuplicate,  // counted before (a resend): drop it
  kStranger,   // its worker has not joined: refuse it
  kNotIssued,  // a version from the future, or a minibatch or version this worker was never given: refuse it
};

const char* to_string(Verdict verdict);  // "accepted", …

struct Update {
  int64_t version = 0;    // after it
  int64_t gradients = 0;  // that it consumes
  double weight = 0;      // on their sum: 1/gradients; with bounded_delay 1/(workers released together)
  bool operator==(const Update&) const = default;
};

struct Release {
  int worker = 0;
  int64_t version = 0;
  int64_t minibatch = 0;  // unique in the life of a policy, in the order of release
  bool fetch = true;      // false: the worker holds this version already
  bool cancels = false;   // it computes something that is void now
  bool operator==(const Release&) const = default;
};

struct Decision {
  Verdict verdict = Verdict::kNone;
  int64_t staleness = 0;  // of an accepted gradient, when it is applied: version - its version
  std::optional<Update> update;
  std::vector<Release> releases;
  bool operator==(const Decision&) const = default;
};

class Policy {
 public:
  // Begins at `version` (that of a checkpoint). Throws ConfigError as validate() does.
  explicit Policy(const PolicyOptions& options, int64_t version = 0);

  // The events. The decision stays valid until the next one.
  //
  // `worker` is any number from 0 on, best dense ones. Joining again voids what it did before, as left()
  // does.
  const Decision& joined(int worker);
  // Also for workers that never joined: nothing happens then.
  const Decision& left(int worker);
  const Decision& arrived(const GradientTags& gradient);

  // Turn the dial while it runs. A smaller k or a larger delay may cause an update or releases at once.
  // Throws ConfigError where the rule has no such dial, or for values below 1 and 0.
  const Decision& set_k(int64_t k);
  const Decision& set_max_delay(int64_t max_delay);

  const PolicyOptions& options() const { return options_; }
  int64_t version() const { return version_; }
  int alive() const { return alive_; }
  int computing() const { return computing_; }          // workers with a minibatch
  int64_t accumulated() const { return accumulated_; }  // gradients in the accumulator

 private:
  enum class State : uint8_t { kAbsent, kWaiting, kComputing };
  struct Worker {
    State state = State::kAbsent;
    bool void_work = false;     // it computes a cancelled minibatch
    int64_t version = -1;       // it holds
    int64_t minibatch = -1;     // it was given last
    int64_t last_counted = -1;  // minibatch; later ones that are not under way were cancelled
    int64_t clock = 0;          // gradients it pushed, from the slowest's clock on when it joined
    double weight = 1;          // of its next gradient, gated rules only
  };

  void clear();
  Verdict judge(const GradientTags& gradient) const;
  void remove(int worker);
  bool waits_for_next_round() const;
  bool complete() const;
  void update(double weight);
  void release(int worker);
  void release_waiting();
  void share_weights();
  bool gate_open(const Worker& worker) const;
  void advance_clock(Worker& worker);
  void find_slowest();

  PolicyOptions options_;
  RuleTraits traits_;
  std::vector<Worker> workers_;
  std::vector<int> waiting_;  // in the order in which they began to wait
  Decision decision_;
  int64_t version_;
  int64_t next_minibatch_ = 0;
  int64_t accumulated_ = 0;
  int alive_ = 0;
  int computing_ = 0;
  bool started_ = false;
  int64_t slowest_clock_ = 0;  // of those alive
  int at_slowest_ = 0;         // so many have it
};

}  // namespace yoke::plan
