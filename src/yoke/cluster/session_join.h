// The blocking first phase of a session: connect, register, wait until all ranks have joined.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "yoke/cluster/session.h"
#include "yoke/net/connection.h"

namespace yoke::cluster {

struct Reached {
  std::unique_ptr<net::Connection> connection;
  net::Address address;
};

struct Joined {
  Reached coordinator;
  std::vector<Member> members;
  Epoch epoch;
  double heartbeat = 0.5;
  double suspicion = 2.0;
};

// Throws Error with kRendezvous. `prepare`: as in Session.
Joined join_job(const Whereabouts& coordinator, const net::JobTicket& ticket, const Member& self,
                int world_size, const JobTraits& traits, Deadline deadline,
                const std::function<void()>& prepare);

// Connects to the coordinator, which may start later than this rank. Throws Error with kRendezvous at the
// deadline, HandshakeRefused at once.
Reached reach(const Whereabouts& coordinator, const net::JobTicket& ticket, int seat, Deadline deadline);

}  // namespace yoke::cluster
