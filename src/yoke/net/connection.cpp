#include "yoke/net/connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "yoke/base/error.h"
#include "yoke/net/connection_impl.h"
#include "yoke/net/resolve.h"
#include "yoke/net/socket_options.h"
#include "yoke/net/wire.h"

namespace yoke::net {
namespace {

// False: the deadline passed first.
bool wait(int fd, short events, Deadline deadline) {
  pollfd one{fd, events, 0};
  int ready = ::poll(&one, 1, deadline.left_ms());
  return ready > 0 || (ready < 0 && errno == EINTR) || !deadline.passed();
}

}  // namespace

const char* to_string(Protection protection) {
  switch (protection) {
    case Protection::kIntegrity:
      return "integrity";
    case Protection::kEncrypted:
      return "encrypted";
    case Protection::kNone:
      return "none";
  }
  return "unknown";
}

std::string describe_peer(int fd, int rank) {
  SocketAddress address;
  address.length = sizeof address.storage;
  std::string place = "an unknown address";
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length) == 0) {
    ucred credentials{};
    socklen_t length = sizeof credentials;
    if (address.family() != AF_UNIX)
      place = to_address(address).text();
    else if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0)
      place = fmt::format("pid {}", credentials.pid);
  }
  return rank < 0 ? place : fmt::format("rank {} at {}", rank, place);
}

void Link::fail(const std::string& why) {
  broken = fmt::format("connection to {}: {}", peer_text, why);
  throw CommError("{}", broken);
}

void Link::check() const {
  if (!broken.empty()) throw CommError("{}", broken);
}

Connection::Impl::Impl(Link&& parts, const DirectionKey& sending, const DirectionKey& receiving)
    : link(std::move(parts)), sender(link, sending), receiver(link, receiving) {}

std::unique_ptr<Connection> make_connection(Descriptor socket, const JobTicket& ticket,
                                            const Introduction& peer, const DirectionKey& sending,
                                            const DirectionKey& receiving) {
  suit_congestion_control(socket.get());
  Link link;
  link.peer = peer;
  link.peer_text = describe_peer(socket.get(), peer.rank);
  link.socket = std::move(socket);
  link.protection = ticket.protection;
  link.job = wire::get<uint32_t>(sha256(as_bytes(ticket.job_id)).data());
  link.generation = ticket.generation;
  return std::make_unique<Connection>(
      std::make_unique<Connection::Impl>(std::move(link), sending, receiving));
}

Connection::Connection(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Connection::~Connection() = default;

int Connection::fd() const {
  return impl_->link.socket.get();
}
const Introduction& Connection::peer() const {
  return impl_->link.peer;
}
const std::string& Connection::peer_text() const {
  return impl_->link.peer_text;
}
void Connection::post(const FrameHeader& header, Bytes payload) {
  impl_->sender.post(header, payload, /*copy=*/false);
}
void Connection::post_copy(const FrameHeader& header, Bytes payload) {
  impl_->sender.post(header, payload, /*copy=*/true);
}
bool Connection::flush() {
  return impl_->sender.flush();
}
bool Connection::has_unsent() const {
  return !impl_->sender.empty();
}
size_t Connection::unsent_frames() const {
  return impl_->sender.frames();
}
const FrameHeader* Connection::next_header() {
  return impl_->receiver.next_header();
}
bool Connection::receive(std::span<std::byte> into) {
  return impl_->receiver.receive(into);
}
short Connection::poll_events(bool want_read) const {
  return static_cast<short>((want_read ? POLLIN : 0) | (has_unsent() ? POLLOUT : 0));
}
uint64_t Connection::bytes_sent() const {
  return impl_->sender.payload_bytes;
}
uint64_t Connection::wire_bytes_sent() const {
  return impl_->sender.wire_bytes;
}

std::vector<std::byte> Connection::receive_frame(FrameHeader& header, Deadline deadline) {
  std::vector<std::byte> payload;
  bool sized = false;
  for (;;) {
    if (const FrameHeader* next = next_header()) {
      if (!sized) payload.resize(next->length);
      sized = true;
      header = *next;
      if (receive(payload)) return payload;
    }
    if (!wait(fd(), POLLIN, deadline))
      throw CommError("connection to {}: no frame within {:.1f} s", peer_text(), deadline.limit());
  }
}

void Connection::flush_all(Deadline deadline) {
  while (!flush())
    if (!wait(fd(), POLLOUT, deadline))
      throw CommError("connection to {}: {} frames could not be sent within {:.1f} s", peer_text(),
                      unsent_frames(), deadline.limit());
}

}  // namespace yoke::net
