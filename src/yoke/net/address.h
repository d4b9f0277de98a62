// Where something listens: "host:port", "[::1]:port", or "unix:@name" (Linux's abstract names, which vanish
// with their process). Sockets are non-blocking and close on exec.
#pragma once

#include <string>

#include "yoke/base/deadline.h"
#include "yoke/base/file.h"

namespace yoke::net {

using Descriptor = FileDescriptor;

struct Address {
  std::string host;  // empty for unix:
  int port = 0;      // 0: any free one
  std::string name;  // of a unix socket, without "unix:@"

  bool is_unix() const { return !name.empty(); }
  std::string text() const;
  bool operator==(const Address&) const = default;
};

// Throws ConfigError naming the text, what is wrong and the accepted forms.
Address parse_address(const std::string& text, int default_port = 0);

// Listens exactly there. Throws Error with kRendezvous: port in use (with the next step), not an address of
// this machine, …
Descriptor listen_at(const Address& address, int backlog = 512);

// Where a listening socket is, with the port the system chose.
Address bound_address(int fd);

// Tries until the deadline while nobody listens yet (refused, unreachable), at growing intervals. Throws
// Error with kRendezvous that names address, what was tried and the time; resolves names with a deadline too.
Descriptor connect_to(const Address& address, Deadline deadline);

// The address other machines reach this one at, given one they do reach: the local end of a route to
// `towards`.
std::string local_address_towards(const Address& towards);

// This machine's name.
std::string host_name();

// Whether the process at the other end of a unix socket belongs to this user (or root).
bool peer_is_same_user(int fd);

}  // namespace yoke::net
