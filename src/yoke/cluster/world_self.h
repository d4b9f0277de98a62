// What a rank reports about itself to the others.
#pragma once

#include "yoke/cluster/identity.h"
#include "yoke/cluster/session.h"
#include "yoke/net/address.h"

namespace yoke::cluster {

// Identical for two processes if and only if they can share memory and unix sockets: boot, namespaces, user.
std::string machine_id();

// Host, process and source of the numbers; the caller fills in the address.
Member describe_self(const Identity& identity);

// Where this rank accepts connections: loopback if all ranks are on this machine, otherwise the address that
// faces the coordinator.
net::Address data_address(const net::Address& coordinator, bool one_machine);

// Where rank 0 accepts connections, given the endpoint the others use. A name that resolves to loopback here
// (Debian's /etc/hosts maps the host's own name to it) would not be reachable from other machines.
net::Address coordinator_address(const net::Address& endpoint, bool one_machine);

}  // namespace yoke::cluster
