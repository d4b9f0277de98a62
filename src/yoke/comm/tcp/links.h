// The connections of one group for one purpose, opened on first use, and how their loss is reported.
#pragma once

#include <poll.h>

#include <memory>
#include <string>
#include <vector>

#include "yoke/comm/tcp/tcp.h"

namespace yoke::comm::tcp {

// Describes the current activity for errors; the text is only built when needed.
class Doing {
 public:
  virtual ~Doing() = default;
  virtual std::string text() const = 0;  // "all_reduce #17 'bucket 2'"
};

class Links {
 public:
  Links(const TcpSetup& setup, std::string purpose);

  const TcpSetup& setup() const { return setup_; }
  // nullptr: not open.
  net::Connection* find(int peer, int lane = 0) const;
  // Connects to the peer, or waits for it to connect. Throws CommError: job failed, deadline, peer
  // unreachable.
  net::Connection& open(int peer, int lane, Deadline deadline, const Doing& doing);
  // Connects if this rank is the caller (the lower rank), otherwise waits for the peer's connection until the
  // deadline at most; nullptr if it has not connected.
  net::Connection* try_open(int peer, int lane, Deadline deadline, const Doing& doing);
  // Closes all connections: memory queued for sending is not accessed afterwards, and the peers notice.
  void close();

  // "rank 2 on node1".
  std::string name_of(int peer) const;
  // Throws the failure of the job if it becomes known within 0.3 s (the cause), otherwise that this peer was
  // lost (the symptom).
  [[noreturn]] void lost(int peer, const std::string& why, Deadline deadline, const Doing& doing) const;
  // Heartbeats notice a machine that is gone, but not a link between two that both reach the coordinator.
  // Throws CommError, or CutLinkError in an elastic job, if the machine of a peer has acknowledged nothing
  // for too long, and the job is not known to have failed otherwise.
  void check_acknowledged(int peer, const net::Connection& connection, Deadline deadline,
                          const Doing& doing) const;
  // Seconds without an acknowledgement after which that is so.
  double cut_off() const;
  // Throws CommError if the job has failed.
  void check(const Doing& doing) const;
  // "all_reduce #17 (rank 1 of 4)".
  std::string where(const Doing& doing) const;

 private:
  std::unique_ptr<net::Connection> call(int peer, int lane, Deadline deadline, const Doing& doing) const;
  // Connects, or waits `listen` seconds for the peer's connection.
  std::unique_ptr<net::Connection> try_open_now(int peer, int lane, Deadline deadline, double listen,
                                                const Doing& doing) const;
  net::Introduction introduction(int caller, int lane, int callee) const;
  std::unique_ptr<net::Connection>& slot(int peer, int lane);

  const TcpSetup& setup_;
  std::string purpose_;
  std::vector<std::unique_ptr<net::Connection>> connections_;  // [peer * lanes + lane]
};

}  // namespace yoke::comm::tcp
