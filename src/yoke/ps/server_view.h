// Where a worker finds the servers, some of which may be lost (ps/succession.h). Thread-safe.
#pragma once

#include <mutex>
#include <string>

#include "yoke/comm/messenger.h"
#include "yoke/ps/replica_ranks.h"
#include "yoke/ps/succession.h"

namespace yoke::ps {

class ServerView {
 public:
  // `first_server`: its peer number; `ranks`: of the job, for messages. Throws ConfigError.
  ServerView(const comm::Messenger& messenger, int first_server, int servers, int replicas,
             const ReplicaRanks& ranks);

  // The peer that serves the ranges of a server. Throws CommError that names the lost servers.
  int peer_of(int home) const;
  // As a number of a server, for messages; -1: nobody.
  int owner(int home) const;
  // Peer of the scheduler, which is with the ranges of the first server.
  int scheduler() const { return peer_of(0); }
  // A request to this peer failed: whether the peer is lost, and another may serve it.
  bool moved(int peer);
  // Why the job cannot continue; empty: it can.
  std::string broken() const;
  int64_t lost() const;

 private:
  std::string describe(int orphan) const;

  const comm::Messenger& messenger_;
  const int first_server_;
  const ReplicaRanks ranks_;
  mutable std::mutex mutex_;
  Succession servers_;
};

}  // namespace yoke::ps
