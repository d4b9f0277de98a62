// The listening side of the handshake: reads exactly the expected bytes, never more, and never waits.
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "yoke/base/error.h"
#include "yoke/net/connection_impl.h"
#include "yoke/net/handshake.h"

namespace yoke::net {
namespace {

constexpr double kPatience = 2.0;  // seconds

}  // namespace

struct PendingHandshake::Impl {
  Descriptor socket;
  const JobTicket* ticket;
  Deadline deadline = Deadline::after(kPatience);
  enum class Phase { kHello, kProof, kDone, kRefused } phase = Phase::kHello;
  handshake::Hello hello{};
  handshake::Challenge challenge{};
  Digest proof{};
  size_t got = 0;  // bytes of the current message
  Introduction peer;
  std::string refusal;
  std::unique_ptr<Connection> connection;

  // True once `message` is complete. Refuses if the peer has closed.
  bool read(std::span<std::byte> message) {
    while (got < message.size()) {
      ssize_t n = ::recv(socket.get(), message.data() + got, message.size() - got, MSG_DONTWAIT);
      if (n > 0) {
        got += static_cast<size_t>(n);
      } else if (n == 0) {
        refuse(fmt::format("it closed the connection after {} bytes", got), /*tell=*/false);
        return false;
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        return false;
      } else if (errno != EINTR) {
        refuse(describe_errno(errno), /*tell=*/false);
        return false;
      }
    }
    got = 0;
    return true;
  }

  // The send buffer of a new connection takes these few bytes; if it does not, give up.
  bool write(Bytes bytes) {
    return ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
           static_cast<ssize_t>(bytes.size());
  }

  void refuse(const std::string& why, bool tell = true) {
    refusal = fmt::format("{}: {}", describe_peer(socket.get(), -1), why);
    phase = Phase::kRefused;
    if (tell) write({&handshake::kTurnedAway, 1});
  }

  void on_hello() {
    if (!read(hello)) return;
    std::string why;
    std::optional<Introduction> introduction = handshake::read_hello(hello, why);
    challenge = handshake::make_challenge();
    // A peer with another version of Yoke gets to see ours; a peer of another protocol gets only the one
    // byte.
    if (!introduction) {
      if (why.find("version") != std::string::npos) write(challenge);
      return refuse(why);
    }
    peer = *introduction;
    if (!write(challenge)) return refuse("it does not read", /*tell=*/false);
    phase = Phase::kProof;
  }

  // All checks happen here, after the proof has arrived, so that no reply reveals which of them failed.
  void on_proof() {
    if (!read(proof)) return;
    std::string difference = handshake::compare(hello, *ticket);
    bool proven = equal_in_constant_time(proof, handshake::caller_proof(*ticket, hello, challenge));
    if (!difference.empty())
      return refuse(fmt::format("claims to be rank {}, but {}", peer.rank, difference));
    if (!proven)
      return refuse(fmt::format("claims to be rank {}, but does not have the job's key", peer.rank));
    std::array<std::byte, handshake::kVerdictBytes> verdict{};
    verdict[0] = handshake::kAccepted;
    Digest own = handshake::listener_proof(*ticket, hello, challenge);
    std::memcpy(verdict.data() + 1, own.data(), own.size());
    if (!write(verdict)) return refuse("it does not read", /*tell=*/false);
    handshake::Keys keys = handshake::derive_keys(*ticket, hello, challenge);
    connection = make_connection(std::move(socket), *ticket, peer, keys.from_listener, keys.from_caller);
    phase = Phase::kDone;
  }

  State state() const {
    if (phase == Phase::kDone) return State::kDone;
    return phase == Phase::kRefused ? State::kRefused : State::kWaiting;
  }
};

PendingHandshake::PendingHandshake(Descriptor socket, const JobTicket& ticket)
    : impl_(std::make_unique<Impl>()) {
  impl_->ticket = &ticket;
  impl_->socket = std::move(socket);
  int domain = 0;
  socklen_t length = sizeof domain;
  ::getsockopt(impl_->socket.get(), SOL_SOCKET, SO_DOMAIN, &domain, &length);
  if (domain == AF_UNIX && !peer_is_same_user(impl_->socket.get()))
    impl_->refuse("it belongs to another user");
}

PendingHandshake::~PendingHandshake() = default;

int PendingHandshake::fd() const {
  return impl_->socket.get();
}

bool PendingHandshake::expired() const {
  return impl_->deadline.passed();
}

PendingHandshake::State PendingHandshake::advance() {
  if (impl_->phase == Impl::Phase::kHello) impl_->on_hello();
  if (impl_->phase == Impl::Phase::kProof) impl_->on_proof();
  return impl_->state();
}

const std::string& PendingHandshake::refusal() const {
  return impl_->refusal;
}

std::unique_ptr<Connection> PendingHandshake::take() {
  return std::move(impl_->connection);
}

}  // namespace yoke::net
