// The one meeting point of a job: ranks find each other here, leave and fetch values, report that they are
// alive, and learn why the job ends. One TCP (or unix) endpoint, one thread, nothing that blocks.
//
// It lives in the launcher (`yoke run`) or, under other launchers, in rank 0.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "yoke/cluster/failure.h"
#include "yoke/net/connection.h"

namespace yoke::cluster {

struct CoordinatorOptions {
  net::Address address;  // port 0: any free one
  int world_size = 1;
  double join_timeout = 60;  // seconds for all ranks to come
  double heartbeat = 0.5;    // seconds between signs of life
  double suspicion = 2.0;    // seconds without one until a rank counts as stalled
  // By rank; empty: none. The job goes on without such a rank: that it is lost, or stalls, is no failure.
  // Once lost it may be started again and joins the running job, in its next life (Member::life).
  std::vector<bool> expendable{};
};

class Coordinator {
 public:
  Coordinator(const CoordinatorOptions& options, const net::JobTicket& ticket);
  ~Coordinator();  // tells those who are still there that it ends, which is no failure

  net::Address address() const;
  // The launcher knows better than a closed connection: call it as soon as a child's end is seen. Everybody
  // is told the cause at once. A report about a rank within 200 ms of its loss replaces the guess.
  void report(const FailureReport& report);
  // A rank that ended well.
  void left(int rank);
  // The cause as it was told, once there is one.
  std::shared_ptr<const FailureReport> failure() const;
  // Whether `rank` has come, perhaps left again: a program that uses this library.
  bool has_joined(int rank) const;
  // What `rank` is in this job ("parameter server 1"); empty: nothing special, or not here.
  std::string role(int rank) const;
  // Who has not come: for "waiting for ranks 3, 7 of 8".
  std::vector<int> missing() const;
  // What it keeps: values, their bytes with their keys, and requests for values that nobody has put yet.
  struct Holding {
    size_t values = 0;
    size_t bytes = 0;
    size_t waiting = 0;
    bool operator==(const Holding&) const = default;
  };
  Holding holding() const;
  // Waits until every rank that came has left or is lost. False: the deadline passed first.
  bool wait_until_empty(Deadline deadline) const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace yoke::cluster
