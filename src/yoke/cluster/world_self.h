// What a rank tells the others about itself.
#pragma once

#include "yoke/cluster/identity.h"
#include "yoke/cluster/session.h"
#include "yoke/net/address.h"

namespace yoke::cluster {

// The same for two processes exactly when they can share memory and unix sockets: boot, namespaces and user.
std::string machine_id();

// Host, process and where the numbers come from; the address is filled in by the caller.
Member describe_self(const Identity& identity);

// Where this rank listens for the others: loopback when all are on this machine, otherwise the address that
// faces the coordinator.
net::Address data_address(const net::Address& coordinator, bool one_machine);

// Where rank 0 listens, given what the others call. A name that stands for loopback here (as Debian's
// /etc/hosts makes of the host's own name) is not reachable from other machines.
net::Address coordinator_address(const net::Address& endpoint, bool one_machine);

}  // namespace yoke::cluster
