// The blocking first phase of a session: connect, register, wait until all ranks have joined.
#pragma once

#include <memory>
#include <vector>

#include "yoke/cluster/session.h"
#include "yoke/net/connection.h"

namespace yoke::cluster {

struct Joined {
  std::unique_ptr<net::Connection> connection;
  std::vector<Member> members;
  Epoch epoch;
  double heartbeat = 0.5;
  double suspicion = 2.0;
};

// Throws Error with kRendezvous.
Joined join_job(const net::Address& coordinator, const net::JobTicket& ticket, const Member& self,
                int world_size, Deadline deadline);

}  // namespace yoke::cluster
