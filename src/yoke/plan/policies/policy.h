// Decides when a parameter server updates, which workers continue, and which work is cancelled.
//
// A state machine without I/O, clocks or threads: events in, a decision out. Server and simulator run this
// same code; equal events give equal decisions. It never sees parameters: the caller keeps them, with one
// accumulator, and executes the decision in this order:
//
//   1. verdict kAccepted: add the gradient to the accumulator. Otherwise do not.
//   2. update: parameters -= step x update.weight x accumulator; clear the accumulator.
//   3. releases: send parameters of `version` (or word that they have not changed) to `worker`, which starts
//      `minibatch`; `cancels`: it must abandon its current one. A gradient of that one, if already sent, is
//      refused as kCancelled.
//
// Each worker has at most one minibatch. Pushing a gradient requests the next one; so does joining.
//
// Membership: a worker that joins or rejoins starts immediately at the current version (but nobody before
// PolicyOptions::workers have joined), with the clock of the slowest; with delay 0, and with keeps_rounds, it
// waits for the next round, in which all are averaged. Gradients pushed by a lost worker count; its current
// minibatch is void, and the others continue without it. In rules with waiting (sync, k_sync, k_async) K is
// limited to what can still arrive: accumulated gradients plus computing workers. The batch rules collect
// their K minibatches from however few workers are left.
//
// An event costs amortised O(1) plus the releases it causes. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "yoke/plan/policies/rule.h"

namespace yoke::plan {

// Identifies a gradient: what its worker was released with.
struct GradientTags {
  int worker = 0;
  int64_t version = 0;
  int64_t minibatch = 0;
};

enum class Verdict : uint8_t {
  kNone,       // the event was not a gradient
  kAccepted,   // counts
  kCancelled,  // its minibatch was cancelled by an update, or its worker has rejoined since: drop it
  kDuplicate,  // counted before (a resend): drop it
  kStranger,   // its worker has not joined, or has left: refuse it
  kNotIssued,  // a version or minibatch that was never assigned to this worker: refuse it
};

const char* to_string(Verdict verdict);  // "accepted", …

struct Update {
  int64_t version = 0;    // after the update
  int64_t gradients = 0;  // consumed
  double weight = 0;  // factor for their sum: 1/gradients; with bounded_delay 1/(workers released together)
  bool operator==(const Update&) const = default;
};

struct Release {
  int worker = 0;
  int64_t version = 0;
  int64_t minibatch = 0;  // unique and increasing in the order of release
  bool fetch = true;      // false: the worker already has this version
  bool cancels = false;   // its current minibatch is void
  bool operator==(const Release&) const = default;
};

struct Decision {
  Verdict verdict = Verdict::kNone;
  int64_t staleness = 0;  // of an accepted gradient, when applied: version - its version
  std::optional<Update> update;
  std::vector<Release> releases;
  bool operator==(const Decision&) const = default;
};

// Where a worker stands.
struct Standing {
  int64_t version = -1;    // that it has; -1: none
  int64_t minibatch = -1;  // last one assigned to it
};

class Policy {
 public:
  // Starts at `version` (of a checkpoint). Throws ConfigError like validate().
  explicit Policy(const PolicyOptions& options, int64_t version = 0);

  // Events. The decision is valid until the next event.
  //
  // `worker` is any number from 0, preferably dense. Rejoining voids previous work, like left().
  const Decision& joined(int worker);
  // No effect for workers that have not joined.
  const Decision& left(int worker);
  const Decision& arrived(const GradientTags& gradient);

  // Changes a parameter while running. A smaller k or a larger delay may cause an update or releases
  // immediately. Throws ConfigError if the rule has no such parameter, or for k < 1 or max_delay < 0.
  const Decision& set_k(int64_t k);
  const Decision& set_max_delay(int64_t max_delay);

  const PolicyOptions& options() const { return options_; }
  int64_t version() const { return version_; }
  int alive() const { return alive_; }
  int computing() const { return computing_; }          // workers with a minibatch
  int64_t accumulated() const { return accumulated_; }  // gradients in the accumulator
  Standing standing(int worker) const;                  // of any worker, also one that has never joined

  // Passes all that the next decisions depend on to `archive(field)`, to save or load it.
  template <class Archive>
  void exchange(Archive& archive) {
    archive(options_);
    archive(workers_);
    archive(waiting_);
    archive(version_);
    archive(next_minibatch_);
    archive(accumulated_);
    archive(alive_);
    archive(computing_);
    archive(started_);
    archive(slowest_clock_);
    archive(at_slowest_);
  }

 private:
  enum class State : uint8_t { kAbsent, kWaiting, kComputing };
  struct Worker {
    State state = State::kAbsent;
    bool void_work = false;     // its current minibatch is cancelled
    int64_t version = -1;       // version it has
    int64_t minibatch = -1;     // last one assigned to it
    int64_t last_counted = -1;  // minibatch; later ones that are not current were cancelled
    int64_t clock = 0;          // gradients pushed, starting from the slowest clock when it joined
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
  std::vector<int> waiting_;  // in the order in which they started to wait
  Decision decision_;
  int64_t version_;
  int64_t next_minibatch_ = 0;
  int64_t accumulated_ = 0;
  int alive_ = 0;
  int computing_ = 0;
  bool started_ = false;
  int64_t slowest_clock_ = 0;  // among workers alive
  int at_slowest_ = 0;         // number of workers at that clock
};

}  // namespace yoke::plan
