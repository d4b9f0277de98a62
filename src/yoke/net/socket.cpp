// Sockets for addresses: listen, connect, query.
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/net/address.h"
#include "yoke/net/resolve.h"
#include "yoke/net/socket_options.h"

namespace yoke::net {
namespace {

constexpr double kFirstPause = 0.005;
constexpr double kLongestPause = 0.15;
constexpr double kOneAttempt = 5.0;  // seconds per address before the next is tried

void set_int(int fd, int level, int option, int value) {
  ::setsockopt(fd, level, option, &value, sizeof value);
}

Descriptor make_socket(int family) {
  return Descriptor(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

int try_listen(const SocketAddress& where, int backlog, Descriptor& socket) {
  socket = make_socket(where.family());
  if (!socket) return errno;
  if (where.family() != AF_UNIX) set_int(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (where.family() == AF_INET6) set_int(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
  return ::bind(socket.get(), where.get(), where.length) == 0 && ::listen(socket.get(), backlog) == 0 ? 0
                                                                                                      : errno;
}

// ": 29401 is free", or empty if none of the following ports is.
std::string free_port_near(Address address) {
  const int last = std::min(65535, address.port + 20);
  while (++address.port <= last) {
    Descriptor socket;
    for (const SocketAddress& one : resolve(address, Deadline::after(1)).addresses)
      if (try_listen(one, 1, socket) == 0) return fmt::format(": {} is free", address.port);
  }
  return "";
}

std::string listen_hint(int error, const Address& address) {
  if (error == EADDRINUSE)
    return address.is_unix() ? "another process of this job, or of somebody else, listens there already"
                             : fmt::format(
                                   "the port is in use (`ss -ltnp` shows the process). Next: choose "
                                   "another port, the same on all machines{}",
                                   free_port_near(address));
  if (error == EADDRNOTAVAIL)
    return "it is not an address of this machine. Next: `ip address` lists its addresses";
  if (error == EACCES) return "ports below 1024 require root. Next: choose a higher port";
  return describe_errno(error);
}

// Connecting to a port of this machine without a listener may use that very port as the source port, and then
// connects to itself.
bool answers_itself(const Descriptor& socket) {
  SocketAddress own, peer;
  own.length = peer.length = sizeof own.storage;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own.storage), &own.length) != 0 ||
      ::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&peer.storage), &peer.length) != 0)
    return false;
  return own.family() != AF_UNIX && own.length == peer.length &&
         std::memcmp(&own.storage, &peer.storage, own.length) == 0;
}

// 0 or the errno.
int try_connect(const SocketAddress& to, Deadline deadline, Descriptor& socket) {
  socket = make_socket(to.family());
  if (!socket) return errno;
  if (::connect(socket.get(), to.get(), to.length) == 0) return answers_itself(socket) ? ECONNREFUSED : 0;
  if (errno != EINPROGRESS) return errno;
  pollfd wait{socket.get(), POLLOUT, 0};
  int ready;
  do ready = ::poll(&wait, 1, deadline.left_ms());
  while (ready < 0 && errno == EINTR && !deadline.passed());
  if (ready <= 0) return ETIMEDOUT;
  int error = 0;
  socklen_t length = sizeof error;
  ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error == 0 && answers_itself(socket) ? ECONNREFUSED : error;
}

// One round over all addresses of the name.
std::string try_all(const Address& address, Deadline deadline, Descriptor& socket) {
  Resolved found = resolve(address, deadline);
  if (found.addresses.empty()) return fmt::format("cannot resolve host '{}': {}", address.host, found.error);
  int error = 0;
  for (const SocketAddress& one : found.addresses) {
    error = try_connect(one, deadline.sooner(kOneAttempt), socket);
    if (error == 0) return "";
  }
  socket.reset();
  return describe_errno(error);
}

}  // namespace

void set_connection_options(int fd) {
  // No effect on unix sockets.
  set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, 4);
}

double seconds_unacknowledged(int fd) {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0 || info.tcpi_unacked == 0) return 0;
  return 1e-3 * info.tcpi_last_ack_recv;
}

Descriptor listen_at(const Address& address, int backlog) {
  Resolved found = resolve(address, Deadline::after(10));
  int error = 0;
  for (const SocketAddress& one : found.addresses) {
    Descriptor socket;
    error = try_listen(one, backlog, socket);
    if (error == 0) return socket;
  }
  throw Error(ExitCode::kRendezvous,
              fmt::format("cannot listen at {}: {}", address.text(),
                          found.addresses.empty() ? "cannot resolve the host: " + found.error
                                                  : listen_hint(error, address)));
}

Address bound_address(int fd) {
  SocketAddress address;
  address.length = sizeof address.storage;
  YOKE_CHECK(::getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length) == 0,
             "getsockname: {}", describe_errno(errno));
  return to_address(address);
}

Descriptor connect_to(const Address& address, Deadline deadline) {
  double pause = kFirstPause;
  bool told = false;
  for (int attempts = 1;; ++attempts) {
    Descriptor socket;
    std::string why = try_all(address, deadline, socket);
    if (why.empty()) {
      set_connection_options(socket.get());
      return socket;
    }
    if (deadline.left() <= pause)
      throw Error(ExitCode::kRendezvous,
                  fmt::format("no answer at {}: {} ({} attempts in {:.1f} s). Next: check that the process "
                              "is listening there, and that this machine can reach it",
                              address.text(), why, attempts, deadline.elapsed()));
    if (!told && why.rfind("cannot resolve", 0) == 0) {
      log::warn("{}; retrying for {:.0f} s", why, deadline.left());
      told = true;
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(pause));
    pause = std::min(pause * 1.6, kLongestPause);
  }
}

std::string local_address_towards(const Address& towards) {
  if (towards.is_unix()) return "127.0.0.1";
  Address target = towards;
  if (target.port == 0) target.port = 9;  // only the route is looked up, nothing is sent
  Resolved found = resolve(target, Deadline::after(10));
  for (const SocketAddress& one : found.addresses) {
    Descriptor socket(::socket(one.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (socket && ::connect(socket.get(), one.get(), one.length) == 0)
      return bound_address(socket.get()).host;
  }
  throw Error(ExitCode::kRendezvous,
              fmt::format("no route to {}{}. Next: check the address and `ip route`", towards.text(),
                          found.error.empty() ? "" : ": " + found.error));
}

bool peer_is_same_user(int fd) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) return false;
  return credentials.uid == ::geteuid() || credentials.uid == 0;
}

}  // namespace yoke::net
