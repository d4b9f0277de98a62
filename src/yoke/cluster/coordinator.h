// The rendezvous service of a job: ranks join here, exchange values through a key-value store, send
// heartbeats and learn why the job ends. One TCP (or unix) endpoint, served by one thread that never blocks.
//
// It runs in the launcher (`yoke run`) or, under other launchers, in rank 0. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "yoke/cluster/failure.h"
#include "yoke/net/connection.h"

namespace yoke::cluster {

struct CoordinatorOptions {
  net::Address address;  // port 0: any free port
  int world_size = 1;
  double join_timeout = 60;  // seconds for all ranks to join
  double heartbeat = 0.5;    // seconds between heartbeats
  double suspicion = 2.0;    // seconds without heartbeat until a rank counts as stalled
  // By rank; empty: none. Losing such a rank, or its stalling, does not fail the job. Once lost it may be
  // restarted and rejoin the running job in its next life (Member::life). One that is replaceable (Member) is
  // evicted when it stalls.
  std::vector<bool> expendable{};
  // Ranks that may join while the job runs (Coordinator hands out their numbers). Losing one does not fail
  // the job.
  int late_ranks = 0;
  // Fewest ranks of an elastic job. 0: the loss of a rank fails the job. Otherwise it ends an epoch: those
  // left regroup (Session::regroup), and the job fails only if they are fewer than this.
  int elastic_min = 0;
  double regroup_timeout = 30;  // seconds for all that are left to regroup; who has not is evicted
  // Whether an epoch may start now; it is asked again soon if not. Must not block.
  std::function<bool()> may_start_epoch = [] { return true; };
  double return_timeout = 3;  // seconds for the members of a job that is taken up to return, after the first
};

class Coordinator {
 public:
  // Starts serving. Throws Error with kRendezvous if the address cannot be bound.
  Coordinator(const CoordinatorOptions& options, const net::JobTicket& ticket);
  ~Coordinator();  // announces the end to connected ranks, which is not a failure for them

  net::Address address() const;
  // Reports how a rank of this machine ended. The launcher knows more than a closed connection shows: a
  // report within 200 ms of the loss of a rank replaces the assumed cause. The cause is then sent to all
  // ranks.
  void report(const FailureReport& report);
  // Ranks in calls of the launcher are those it gave (Member::seat).
  // Marks a rank that ended normally.
  void left(int rank);
  // The cause as sent to all ranks; nullptr while there is none.
  std::shared_ptr<const FailureReport> failure() const;
  // Whether `rank` has joined (it may have left again), i.e. uses this library.
  bool has_joined(int rank) const;
  // Whether the job continues without `rank`, as its options or its program say.
  bool expendable(int rank) const;
  // Role of `rank` in this job ("parameter server 1"); empty: none, or not joined.
  std::string role(int rank) const;
  // Whether the job continues without `rank` once it stalls, and whether it has, so that its process is to be
  // ended.
  bool is_replaceable(int rank) const;
  bool is_evicted(int rank) const;
  // Ranks that have not joined, for "waiting for ranks 3, 7 of 8".
  std::vector<int> missing() const;
  // Contents of the store: values, their bytes including keys, and pending requests for missing values.
  struct Holding {
    size_t values = 0;
    size_t bytes = 0;
    size_t waiting = 0;
    bool operator==(const Holding&) const = default;
  };
  Holding holding() const;
  // Of an elastic job, for people and tools: number and members of the epoch, losses, joins, newest step.
  nlohmann::json position() const;
  // Whether a rank of the last epoch has ended normally, and no failure is known.
  bool finished() const;
  // Waits until every rank that joined has left or is lost. False: the deadline passed first.
  bool wait_until_empty(Deadline deadline) const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace yoke::cluster
