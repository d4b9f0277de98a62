// Where a worker finds the servers, some of which may be lost or join (ps/succession.h). Thread-safe.
#pragma once

#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "yoke/comm/messenger.h"
#include "yoke/ps/messages.h"
#include "yoke/ps/replica_ranks.h"
#include "yoke/ps/succession.h"

namespace yoke::ps {

class ServerView {
 public:
  // `first_server`: its peer number; `at_start`: as in ServerOptions; `machines`: as in ServerOptions;
  // `ranks`: of the job, for messages. Throws ConfigError.
  ServerView(const comm::Messenger& messenger, int first_server, int servers, int replicas, int at_start,
             const ReplicaRanks& ranks, const std::vector<std::string>& machines = {});

  // The peer that serves the ranges of a server. Throws CommError that names the lost servers.
  int peer_of(int home) const;
  // As a number of a server, for messages; -1: nobody.
  int owner(int home) const;
  // Peer of the scheduler, which is with the ranges of the first server.
  int scheduler() const { return peer_of(0); }
  // What a server says of a home that has moved. A request that was answered with it is to be sent again.
  void learn(const comm::Message& moved);
  // Whether requests may be answered by another server than at the start.
  bool changes() const { return changes_; }
  // Of a server that has lost another: whether it is lost (server_fence.cpp).
  GoneReply judge(int asker, const comm::Message& question);
  // A request to this peer failed: whether the peer is lost, and another may serve it.
  bool moved(int peer);
  // Why the job cannot continue; empty: it can.
  std::string broken() const;
  int64_t lost() const;

 private:
  std::string describe(int orphan) const;

  const comm::Messenger& messenger_;
  const int first_server_;
  const bool changes_;
  const ReplicaRanks ranks_;
  mutable std::mutex mutex_;
  std::set<std::pair<int, int>> complaints_;  // the first server has lost the second
  Succession servers_;
};

}  // namespace yoke::ps
