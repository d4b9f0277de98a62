// Transport over authenticated connections. A message is a first frame (head, and the payload up to kJoined
// bytes), followed by frames of at most kFrame bytes. Messages to one peer are written one after the other,
// so frames need no ids.
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/comm/messages/core.h"
#include "yoke/net/socket_options.h"

namespace yoke::comm {
namespace messages {
namespace {

// Payloads up to this size share the first frame with the head.
constexpr size_t kJoined = 4096;
constexpr size_t kFrame = 256 << 10;
constexpr size_t kFramesAhead = 64;  // small ones, sent with one system call
constexpr size_t kLargeFramesAhead = 3;

class TcpTransport final : public Transport {
 public:
  explicit TcpTransport(const TcpMessengerSetup& setup)
      : setup_(setup),
        peers_(static_cast<size_t>(setup.size)),
        wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    YOKE_CHECK(wake_, "eventfd: {}", describe_errno(errno));
    setup.life == 0 ? join() : come_back();
  }

  const std::string& name() const override { return name_; }
  bool one_at_a_time() const override { return true; }
  bool write(int peer, Outgoing& message) override;
  bool push(int peer) override { return of(peer).connection->flush(); }
  void close(int peer) override { peers_[static_cast<size_t>(peer)].connection.reset(); }
  const WireHead* next(int peer) override;
  bool read(int peer, std::span<std::byte> into) override;
  void wait(const std::vector<bool>& has_unwritten, double seconds) override;
  void wake() override {
    uint64_t one = 1;
    while (::write(wake_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
    }
  }
  void look_for_deaths() override;
  int returned(int peer) override { return peers_[static_cast<size_t>(peer)].calls_again; }
  void reopen(int peer) override;
  bool is_absent(int peer) const override {
    return setup_.is_late(peer) && !peers_[static_cast<size_t>(peer)].connection;
  }

 private:
  struct Peer {
    std::unique_ptr<net::Connection> connection;
    std::string vanished;          // why the connection is of no use although it is open
    uint64_t posted = 0;           // frames since the connection was opened
    std::vector<std::byte> first;  // first frame of the message being read
    WireHead head;
    bool has_head = false;
    size_t received = 0;
    int life = 0;
    int calls_again = 0;  // new life of the peer, which has connected; 0: none
    std::unique_ptr<net::Connection> again;
  };
  Peer& of(int peer) {
    Peer& state = peers_[static_cast<size_t>(peer)];
    if (!state.connection) throw CommError("rank {} is lost", peer);
    if (!state.vanished.empty()) throw CommError("{}", state.vanished);
    return state;
  }
  net::Introduction introduction(int caller, int callee, int life) const;
  void join();
  void call(int peer, const Deadline& deadline);
  void await(int peer, const Deadline& deadline);
  void come_back();
  void look_for_vanished();
  void accept_returned();
  void post_first(Peer& state, Outgoing& message);

  const std::string name_ = "tcp";
  const TcpMessengerSetup setup_;
  std::vector<Peer> peers_;
  net::Descriptor wake_;
  std::vector<pollfd> polled_;
  double looked_ = 0;
};

constexpr const char* kPurpose = "messages";
constexpr double kLookEvery = 1;          // seconds between looks for peers whose machine has vanished
constexpr double kVanished = 20;          // seconds without an acknowledgement
constexpr double kCallAgainSeconds = 10;  // per peer of a restarted rank

// Several ranks of a messenger may be one rank of the job with one acceptor: the group id tells them apart.
net::Introduction TcpTransport::introduction(int caller, int callee, int life) const {
  constexpr int kCallerShift = 24, kCalleeShift = 44;
  uint64_t pair =
      (static_cast<uint64_t>(caller) << kCallerShift) | (static_cast<uint64_t>(callee) << kCalleeShift);
  return {setup_.members[static_cast<size_t>(caller)].rank, kPurpose, setup_.group ^ pair,
          static_cast<uint32_t>(life), setup_.members[static_cast<size_t>(callee)].rank};
}

// Connects to higher ranks, then accepts from lower ones: no cycle of ranks that wait for each other.
void TcpTransport::join() {
  Deadline deadline = Deadline::after(setup_.timeout);
  for (int peer = setup_.rank + 1; peer < setup_.size; ++peer)
    if (!setup_.is_late(peer)) call(peer, deadline);
  for (int peer = 0; peer < setup_.rank; ++peer)
    if (!setup_.is_late(peer)) await(peer, deadline);
}

void TcpTransport::call(int peer, const Deadline& deadline) {
  const cluster::Member& callee = setup_.members[static_cast<size_t>(peer)];
  try {
    peers_[static_cast<size_t>(peer)].connection = net::dial(
        net::parse_address(callee.address), setup_.ticket, introduction(setup_.rank, peer, 0), deadline);
  } catch (const Error& error) {
    if (setup_.failure) setup_.failure->check("connecting messengers");
    throw CommError("messenger of rank {}: cannot reach rank {} on {}: {}", setup_.rank, peer, callee.host,
                    error.what());
  }
}

void TcpTransport::await(int peer, const Deadline& deadline) {
  auto& connection = peers_[static_cast<size_t>(peer)].connection;
  while (
      !(connection = setup_.acceptor->take_if(introduction(peer, setup_.rank, 0), deadline.sooner(0.02)))) {
    if (setup_.failure) setup_.failure->check("connecting messengers");
    if (deadline.passed())
      throw CommError("messenger of rank {}: rank {} has not connected after {:.1f} s", setup_.rank, peer,
                      deadline.elapsed());
  }
}

// Connects to everybody once. A peer that does not answer counts as lost when it is used. Of two ranks that
// were not there at the start, or were restarted, the one that came later knows the other's address.
void TcpTransport::come_back() {
  const bool is_late = setup_.is_late(setup_.rank);
  for (int peer = 0; peer < setup_.size; ++peer) {
    const cluster::Member& callee = setup_.members[static_cast<size_t>(peer)];
    const int first_life = setup_.is_late(peer) ? 1 : 0;
    if (peer == setup_.rank || callee.address.empty() || (!is_late && callee.life > first_life)) continue;
    Deadline deadline = Deadline::after(kCallAgainSeconds);
    try {
      peers_[static_cast<size_t>(peer)].connection =
          net::introduce(net::connect_to(net::parse_address(callee.address), deadline), setup_.ticket,
                         introduction(setup_.rank, peer, setup_.life), deadline);
    } catch (const Error&) {
    }
  }
}

// A closed connection is noticed on use.
void TcpTransport::look_for_deaths() {
  if (double now = now_seconds(); now - looked_ >= kLookEvery) {
    looked_ = now;
    look_for_vanished();
  }
  accept_returned();
}

// A machine without power or network closes nothing.
void TcpTransport::look_for_vanished() {
  for (size_t peer = 0; peer < peers_.size(); ++peer) {
    Peer& state = peers_[peer];
    if (!state.connection || !state.vanished.empty()) continue;
    const double seconds = net::seconds_unacknowledged(state.connection->fd());
    if (seconds > kVanished)
      state.vanished =
          fmt::format("the machine of rank {} has acknowledged nothing for {:.0f} s", peer, seconds);
  }
}

void TcpTransport::accept_returned() try {
  if (!setup_.may_return) return;
  auto caller_of = [&](const net::Introduction& call) {
    for (int peer = 0; peer < setup_.size; ++peer) {
      net::Introduction own = introduction(peer, setup_.rank, 0);
      if (peer != setup_.rank && call.rank == own.rank && call.group == own.group) return peer;
    }
    return -1;
  };
  auto again = [&](const net::Introduction& call) {
    return call.purpose == kPurpose && call.lane > 0 && caller_of(call) >= 0;
  };
  while (auto connection = setup_.acceptor->take_now(again)) {
    Peer& state = peers_[static_cast<size_t>(caller_of(connection->peer()))];
    auto life = static_cast<int>(connection->peer().lane);
    if (life <= std::max(state.life, state.calls_again)) continue;
    state.calls_again = life;
    state.again = std::move(connection);
  }
} catch (const CommError&) {
  // The acceptor has failed: no rank can rejoin.
}

void TcpTransport::reopen(int peer) {
  Peer& state = peers_[static_cast<size_t>(peer)];
  state.connection = std::move(state.again);
  state.life = std::exchange(state.calls_again, 0);
  state.vanished.clear();
  state.posted = 0;
  state.has_head = false;
  state.received = 0;
}

void TcpTransport::post_first(Peer& state, Outgoing& message) {
  std::byte frame[sizeof(WireHead) + kJoined];
  size_t joined = message.payload.size() <= kJoined ? message.payload.size() : 0;
  std::memcpy(frame, &message.head, sizeof(WireHead));
  if (joined > 0) std::memcpy(frame + sizeof(WireHead), message.payload.data(), joined);
  net::FrameHeader header;
  bool answers = message.head.type == WireType::kAnswer || message.head.type == WireType::kRefusal;
  header.type = answers ? net::FrameType::kAnswer : net::FrameType::kMessage;
  header.channel = message.head.kind;
  header.context = message.head.id;
  state.connection->post_copy(header, {frame, sizeof(WireHead) + joined});
  message.offset = joined;
  message.state = ++state.posted;
}

bool TcpTransport::write(int peer, Outgoing& message) {
  Peer& state = of(peer);
  net::Connection& connection = *state.connection;
  if (!message.started()) {
    if (connection.unsent_frames() >= kFramesAhead && !connection.flush()) return false;
    post_first(state, message);
    if (message.offset == message.payload.size()) return true;
  }
  do {
    while (message.offset < message.payload.size() && connection.unsent_frames() < kLargeFramesAhead) {
      net::FrameHeader header;
      header.type = net::FrameType::kMessage;
      header.context = message.head.id;
      size_t length = std::min(kFrame, message.payload.size() - message.offset);
      connection.post(header, message.payload.subspan(message.offset, length));
      message.offset += length;
      message.state = ++state.posted;
    }
  } while (connection.flush() && message.offset < message.payload.size());
  return message.offset == message.payload.size() &&
         state.posted - connection.unsent_frames() >= message.state;
}

const WireHead* TcpTransport::next(int peer) {
  Peer& state = of(peer);
  if (state.has_head) return &state.head;
  const net::FrameHeader* header = state.connection->next_header();
  if (!header) return nullptr;
  if (header->length < sizeof(WireHead) || header->length > sizeof(WireHead) + kJoined)
    throw CommError("a first frame of {} bytes from {}", header->length, state.connection->peer_text());
  state.first.resize(header->length);
  if (!state.connection->receive(state.first)) return nullptr;
  std::memcpy(&state.head, state.first.data(), sizeof(WireHead));
  size_t joined = state.first.size() - sizeof(WireHead);
  if (joined != (state.head.bytes <= kJoined ? state.head.bytes : 0))
    throw CommError("a first frame of {} bytes from {}", state.first.size(), state.connection->peer_text());
  state.has_head = true;
  state.received = 0;
  return &state.head;
}

bool TcpTransport::read(int peer, std::span<std::byte> into) {
  Peer& state = of(peer);
  size_t joined = state.first.size() - sizeof(WireHead);
  if (joined > 0) {
    std::memcpy(into.data(), state.first.data() + sizeof(WireHead), joined);
    state.received = joined;
  }
  while (state.received < into.size()) {
    const net::FrameHeader* header = state.connection->next_header();
    if (!header) return false;
    size_t length = header->length;
    if (length > into.size() - state.received)
      throw CommError("a frame of {} bytes from {}", length, state.connection->peer_text());
    if (!state.connection->receive(into.subspan(state.received, length))) return false;
    state.received += length;
  }
  state.has_head = false;
  return true;
}

void TcpTransport::wait(const std::vector<bool>& has_unwritten, double seconds) {
  polled_.assign(1, {wake_.get(), POLLIN, 0});
  for (size_t peer = 0; peer < peers_.size(); ++peer) {
    if (!peers_[peer].connection) continue;
    auto events = static_cast<short>(POLLIN | (has_unwritten[peer] ? POLLOUT : 0));
    polled_.push_back({peers_[peer].connection->fd(), events, 0});
  }
  ::poll(polled_.data(), polled_.size(), static_cast<int>(seconds * 1e3) + 1);
  uint64_t count = 0;
  if (polled_[0].revents != 0 && ::read(wake_.get(), &count, sizeof(count)) < 0 && errno != EAGAIN)
    throw CommError("eventfd: {}", describe_errno(errno));
}

}  // namespace
}  // namespace messages

std::unique_ptr<Messenger> make_tcp_messenger(const TcpMessengerSetup& setup) {
  YOKE_CHECK(setup.members.size() == static_cast<size_t>(setup.size), "{} members for {} ranks",
             setup.members.size(), setup.size);
  return std::make_unique<messages::MessengerCore>(setup, std::make_unique<messages::TcpTransport>(setup));
}

}  // namespace yoke::comm
