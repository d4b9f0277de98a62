// Addresses to listen at: "host:port", "[::1]:port", or "unix:@name" (Linux abstract sockets, which disappear
// with their process). Sockets are non-blocking and close on exec.
#pragma once

#include <string>

#include "yoke/base/deadline.h"
#include "yoke/base/file.h"

namespace yoke::net {

using Descriptor = FileDescriptor;

struct Address {
  std::string host;  // empty for unix:
  int port = 0;      // 0: any free port
  std::string name;  // of a unix socket, without "unix:@"

  bool is_unix() const { return !name.empty(); }
  std::string text() const;
  bool operator==(const Address&) const = default;
};

// Throws ConfigError naming the text, the problem and the accepted forms.
Address parse_address(const std::string& text, int default_port = 0);

// Listens at exactly this address. Throws Error with kRendezvous: port in use (with the next step), not an
// address of this machine, …
Descriptor listen_at(const Address& address, int backlog = 512);

// The address of a listening socket, with the port chosen by the system.
Address bound_address(int fd);

// Retries until the deadline, at growing intervals, while nobody listens (refused, unreachable). Throws Error
// with kRendezvous that names address, reason and time. Name resolution respects the deadline too.
Descriptor connect_to(const Address& address, Deadline deadline);

// The address of this machine on the route to `towards`, i.e. one that machines there can reach.
std::string local_address_towards(const Address& towards);

// Host name of this machine.
std::string host_name();

// Whether the process at the other end of a unix socket belongs to this user (or root).
bool peer_is_same_user(int fd);

}  // namespace yoke::net
