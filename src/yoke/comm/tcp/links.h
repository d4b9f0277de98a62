// The connections of one group for one purpose, opened when they are first wanted, and how their loss is
// told.
#pragma once

#include <poll.h>

#include <memory>
#include <string>
#include <vector>

#include "yoke/comm/tcp/tcp.h"

namespace yoke::comm::tcp {

// What is being done, for errors: text made only when it is needed.
class Doing {
 public:
  virtual ~Doing() = default;
  virtual std::string text() const = 0;  // "all_reduce #17 'bucket 2'"
};

class Links {
 public:
  Links(const TcpSetup& setup, std::string purpose);

  const TcpSetup& setup() const { return setup_; }
  // nullptr: not opened yet.
  net::Connection* find(int peer, int lane = 0) const;
  // Connects or waits for the peer to call. Throws CommError: failure, deadline, peer not reachable.
  net::Connection& open(int peer, int lane, Deadline deadline, const Doing& doing);
  // Without waiting for the peer: nullptr when it is its turn to call and it has not.
  net::Connection* try_open(int peer, int lane, Deadline deadline, const Doing& doing);
  // Closes everything: what was queued for sending is never touched again, and the peers learn of it.
  void close();

  // "rank 2 on node1".
  std::string name_of(int peer) const;
  // Throws the job's failure if it is told within 0.3 s (the cause), otherwise that this peer was lost (the
  // symptom).
  [[noreturn]] void lost(int peer, const std::string& why, Deadline deadline, const Doing& doing) const;
  // Throws when the job has failed.
  void check(const Doing& doing) const;
  // "all_reduce #17 on rank 1 of 4".
  std::string where(const Doing& doing) const;

 private:
  std::unique_ptr<net::Connection> call(int peer, int lane, Deadline deadline, const Doing& doing) const;
  // Connects, or listens for the peer's call for `listen` seconds.
  std::unique_ptr<net::Connection> try_open_now(int peer, int lane, Deadline deadline, double listen,
                                                const Doing& doing) const;
  net::Introduction introduction(int caller, int lane, int callee) const;
  std::unique_ptr<net::Connection>& slot(int peer, int lane);

  const TcpSetup& setup_;
  std::string purpose_;
  std::vector<std::unique_ptr<net::Connection>> connections_;  // [peer * lanes + lane]
};

}  // namespace yoke::comm::tcp
