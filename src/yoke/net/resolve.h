// Name resolution with a deadline.
#pragma once

#include <netdb.h>
#include <sys/socket.h>

#include <string>
#include <vector>

#include "yoke/base/deadline.h"
#include "yoke/net/address.h"

namespace yoke::net {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  int family() const { return storage.ss_family; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

struct Resolved {
  std::vector<SocketAddress> addresses;
  std::string error;  // why there are none
};

// Numeric and unix addresses immediately; host names in a thread that is abandoned at the deadline.
Resolved resolve(const Address& address, Deadline deadline);

// "10.0.0.2:4711", "[::1]:4711", "unix:@name".
Address to_address(const SocketAddress& address);

}  // namespace yoke::net
