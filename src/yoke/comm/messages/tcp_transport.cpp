#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "yoke/base/error.h"
#include "yoke/comm/messages/core.h"

namespace yoke::comm {
namespace messages {
namespace {

// Payloads up to this size travel in the first frame.
constexpr size_t kJoined = 4096;
constexpr size_t kFrame = 256 << 10;
constexpr size_t kFramesAhead = 64;  // small ones, gathered for one system call
constexpr size_t kLargeFramesAhead = 3;

class TcpTransport final : public Transport {
 public:
  explicit TcpTransport(const TcpMessengerSetup& setup)
      : peers_(static_cast<size_t>(setup.size)), wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    YOKE_CHECK(wake_, "eventfd: {}", describe_errno(errno));
    Deadline deadline = Deadline::after(setup.timeout);
    for (int peer = setup.rank + 1; peer < setup.size; ++peer) call(setup, peer, deadline);
    for (int peer = 0; peer < setup.rank; ++peer) await(setup, peer, deadline);
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
  void look_for_deaths() override {}  // a closed connection says so itself

 private:
  struct Peer {
    std::unique_ptr<net::Connection> connection;
    uint64_t posted = 0;           // frames, since the beginning
    std::vector<std::byte> first;  // the first frame of the message that is being read
    WireHead head;
    bool has_head = false;
    size_t received = 0;
  };
  Peer& of(int peer) {
    Peer& state = peers_[static_cast<size_t>(peer)];
    if (!state.connection) throw CommError("rank {} is lost", peer);
    return state;
  }
  void call(const TcpMessengerSetup& setup, int peer, const Deadline& deadline);
  void await(const TcpMessengerSetup& setup, int peer, const Deadline& deadline);
  void post_first(Peer& state, Outgoing& message);

  const std::string name_ = "tcp";
  std::vector<Peer> peers_;
  net::Descriptor wake_;
  std::vector<pollfd> polled_;
};

constexpr const char* kPurpose = "messages";

void TcpTransport::call(const TcpMessengerSetup& setup, int peer, const Deadline& deadline) {
  const cluster::Member& callee = setup.members[static_cast<size_t>(peer)];
  net::Introduction self{setup.members[static_cast<size_t>(setup.rank)].rank, kPurpose, setup.group, 0,
                         callee.rank};
  try {
    peers_[static_cast<size_t>(peer)].connection =
        net::dial(net::parse_address(callee.address), setup.ticket, self, deadline);
  } catch (const Error& error) {
    if (setup.failure) setup.failure->check("connecting messengers");
    throw CommError("messenger of rank {}: cannot reach rank {} on {}: {}", setup.rank, peer, callee.host,
                    error.what());
  }
}

void TcpTransport::await(const TcpMessengerSetup& setup, int peer, const Deadline& deadline) {
  net::Introduction wanted{setup.members[static_cast<size_t>(peer)].rank, kPurpose, setup.group, 0, -1};
  auto& connection = peers_[static_cast<size_t>(peer)].connection;
  while (!(connection = setup.acceptor->take_if(wanted, deadline.sooner(0.02)))) {
    if (setup.failure) setup.failure->check("connecting messengers");
    if (deadline.passed())
      throw CommError("messenger of rank {}: rank {} has not called after {:.1f} s", setup.rank, peer,
                      deadline.elapsed());
  }
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
