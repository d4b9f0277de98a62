// The calling side of the handshake.
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "yoke/base/error.h"
#include "yoke/net/connection_impl.h"
#include "yoke/net/handshake.h"

namespace yoke::net {
namespace {

constexpr double kOneHandshake = 3.0;  // seconds; the listener gives up after 2

[[noreturn]] void give_up(int fd, const std::string& why) {
  throw Error(ExitCode::kRendezvous, fmt::format("handshake with {}: {}", describe_peer(fd, -1), why));
}

[[noreturn]] void foreign(int fd, const std::string& why) {
  throw HandshakeRefused(
      ExitCode::kRendezvous,
      fmt::format(
          "refused at {}: {}. Next: check --rdzv-endpoint (or MASTER_ADDR and MASTER_PORT): another "
          "program, or another version of Yoke, has that port. Choose a free one, the same on all machines",
          describe_peer(fd, -1), why));
}

[[noreturn]] void refused(int fd, const JobTicket& ticket, const std::string& why) {
  throw HandshakeRefused(
      ExitCode::kRendezvous,
      fmt::format("refused at {}: {} (this is job '{}', generation {}, protection '{}'). Next: use the same "
                  "key, job id and protection on all machines (--secret-file, --rdzv-id)",
                  describe_peer(fd, -1), why, ticket.job_id, ticket.generation,
                  to_string(ticket.protection)));
}

void wait_for(int fd, short events, Deadline deadline) {
  pollfd one{fd, events, 0};
  if (::poll(&one, 1, deadline.left_ms()) == 0 && deadline.passed())
    give_up(fd, fmt::format("no answer within {:.1f} s", deadline.limit()));
}

void write_all(int fd, Bytes bytes, Deadline deadline) {
  while (!bytes.empty()) {
    ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0)
      bytes = bytes.subspan(static_cast<size_t>(sent));
    else if (errno == EAGAIN)
      wait_for(fd, POLLOUT, deadline);
    else if (errno != EINTR)
      give_up(fd, describe_errno(errno));
  }
}

void read_all(int fd, std::span<std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    ssize_t got = ::recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got > 0)
      bytes = bytes.subspan(static_cast<size_t>(got));
    else if (got == 0)
      give_up(fd, "closed without an answer");
    else if (errno == EAGAIN)
      wait_for(fd, POLLIN, deadline);
    else if (errno != EINTR)
      give_up(fd, describe_errno(errno));
  }
}

bool is_unix(int fd) {
  int domain = 0;
  socklen_t length = sizeof domain;
  return ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_UNIX;
}

}  // namespace

// Mutual authentication: the caller proves itself first, then the listener must prove that it knows the key
// too. No data is ever sent to a process without the key.
std::unique_ptr<Connection> introduce(Descriptor socket, const JobTicket& ticket, const Introduction& self,
                                      Deadline deadline) {
  int fd = socket.get();
  // The listener's user is verified before we send anything.
  if (is_unix(fd) && !peer_is_same_user(fd))
    refused(fd, ticket, "the process that listens there belongs to another user");
  handshake::Hello hello = handshake::make_hello(ticket, self);
  write_all(fd, hello, deadline);
  handshake::Challenge challenge;
  // A server of another protocol may send less than a whole challenge.
  read_all(fd, std::span(challenge).first(handshake::kMagicBytes), deadline);
  if (!handshake::begins_challenge(challenge)) foreign(fd, "it speaks another protocol");
  read_all(fd, std::span(challenge).subspan(handshake::kMagicBytes), deadline);
  if (std::string why = handshake::check_challenge(challenge); !why.empty()) foreign(fd, why);
  write_all(fd, handshake::caller_proof(ticket, hello, challenge), deadline);
  std::byte verdict;
  read_all(fd, {&verdict, 1}, deadline);
  if (verdict != handshake::kAccepted)
    refused(fd, ticket, "it has another key, or belongs to another job, generation or rank; see its log");
  Digest proof;
  read_all(fd, proof, deadline);
  if (!equal_in_constant_time(proof, handshake::listener_proof(ticket, hello, challenge)))
    refused(fd, ticket, "it accepted the connection but does not have the key");
  handshake::Keys keys = handshake::derive_keys(ticket, hello, challenge);
  Introduction peer = self;
  peer.rank = self.callee;
  return make_connection(std::move(socket), ticket, peer, keys.from_caller, keys.from_listener);
}

std::unique_ptr<Connection> dial(const Address& address, const JobTicket& ticket, const Introduction& self,
                                 Deadline deadline) {
  for (double pause = 0.02;; pause = std::min(2 * pause, 0.5)) {
    Descriptor socket = connect_to(address, deadline);
    try {
      return introduce(std::move(socket), ticket, self, deadline.sooner(kOneHandshake));
    } catch (const HandshakeRefused&) {
      throw;
    } catch (const Error&) {
      // Closed or silent: displaced by other connections, or the listener is just starting or ending.
      if (deadline.left() <= pause) throw;
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(pause));
  }
}

}  // namespace yoke::net
