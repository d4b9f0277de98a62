// Point-to-point transfers share one connection per peer, multiplexed by tag.
//
// A message is a first frame with the descriptor (and the data, if small), followed by data frames. Frames of
// different tags interleave, those of one tag do not. A frame for a tag without a receive is buffered
// ("aside"), so that a late receive of one tag does not block the others; beyond kMostAside the connection is
// not read any more until that receive is issued.
#include "yoke/comm/tcp/point_to_point.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "yoke/base/clock.h"

namespace yoke::comm::tcp {
namespace {

constexpr size_t kFramesAhead = 2;
// Seconds that a wait accepts connections before it polls everything else again.
constexpr double kListen = 0.002;
constexpr double kLookEvery = 0.25;

class TransferText : public Doing {
 public:
  explicit TransferText(const Transfer& transfer) : transfer_(transfer) {}
  std::string text() const override { return transfer_.descriptor.text(); }

 private:
  const Transfer& transfer_;
};

net::FrameHeader header_of(const Transfer& transfer, uint8_t flags, uint32_t generation) {
  net::FrameHeader header;
  header.type = net::FrameType::kData;
  header.flags = flags;
  header.channel = static_cast<uint16_t>(transfer.tag);
  header.generation = generation;
  header.fingerprint = transfer.fingerprint;
  header.context = transfer.descriptor.number;
  return header;
}

}  // namespace

PointToPoint::PointToPoint(const TcpSetup& setup, Counts& counts)
    : setup_(setup),
      counts_(counts),
      links_(setup, "p2p"),
      peers_(static_cast<size_t>(setup.size)),
      wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  YOKE_CHECK(wake_, "eventfd: {}", describe_errno(errno));
}

bool PointToPoint::connect(int peer, Deadline deadline, const Doing& doing) {
  Peer& state = peers_[static_cast<size_t>(peer)];
  if (!state.connection) state.connection = links_.try_open(peer, 0, deadline, doing);
  return state.connection != nullptr;
}

bool PointToPoint::advance(Transfer& transfer) {
  if (!broken_.empty()) throw CommError("{}", broken_);
  Peer& peer = peers_[static_cast<size_t>(transfer.peer)];
  TransferText doing(transfer);
  bool calls = setup_.rank < transfer.peer;
  Deadline started = Deadline::after(30);
  try {
    if (!peer.connection && !(calls && connect(transfer.peer, started, doing))) return false;
    look_for_cut_link(peer, transfer, started);
    try {
      return transfer.is_send ? send(peer, transfer) : receive(peer, transfer);
    } catch (const MismatchError&) {
      throw;
    } catch (const CommError& error) {
      links_.lost(transfer.peer, error.what(), started, doing);
    }
  } catch (const CommError& error) {
    // Queued frames refer to memory that its owner may release after this error.
    broken_ = error.what();
    links_.close();
    for (Peer& one : peers_) one.connection = nullptr;
    throw;
  }
}

void PointToPoint::look_for_cut_link(Peer& peer, const Transfer& transfer, Deadline started) {
  const double now = now_seconds();
  if (now < peer.next_look) return;
  peer.next_look = now + kLookEvery;
  links_.check_acknowledged(transfer.peer, *peer.connection, started, TransferText(transfer));
}

// Posts until everything is sent or the socket is full; then unsent data remains, on which wait_for() polls.
bool PointToPoint::send(Peer& peer, Transfer& transfer) {
  auto has_more = [&] { return transfer.state == 0 || transfer.offset < transfer.bytes; };
  do {
    while (has_more() && peer.connection->unsent_frames() < kFramesAhead) post_next(peer, transfer);
  } while (peer.connection->flush() && has_more());
  return !has_more() && peer.posted - peer.connection->unsent_frames() >= transfer.state;
}

// transfer.state of a send: number of its last frame on this connection.
void PointToPoint::post_next(Peer& peer, Transfer& transfer) {
  const uint32_t generation = setup_.ticket.generation;
  if (transfer.state == 0) {
    std::byte frame[sizeof(Descriptor) + kJoinedBytes];
    size_t joined = transfer.bytes <= kJoinedBytes ? transfer.bytes : 0;
    std::memcpy(frame, &transfer.descriptor, sizeof(Descriptor));
    if (joined > 0) std::memcpy(frame + sizeof(Descriptor), transfer.data, joined);
    peer.connection->post_copy(header_of(transfer, kDescribes, generation),
                               {frame, sizeof(Descriptor) + joined});
    transfer.offset = joined;
    counts_.bytes_sent += static_cast<int64_t>(transfer.bytes);
    ++counts_.messages_sent;
  } else {
    size_t length = std::min(kFrameBytes, transfer.bytes - transfer.offset);
    peer.connection->post(header_of(transfer, 0, generation), {transfer.data + transfer.offset, length});
    transfer.offset += length;
  }
  transfer.state = ++peer.posted;
}

bool PointToPoint::receive(Peer& peer, Transfer& transfer) {
  Incoming& incoming = peer.tags[transfer.tag];
  incoming.wanted = true;
  peer.full = false;
  bool complete = take_from_aside(peer, transfer);
  while (!complete && read_frame(peer, transfer)) {
    complete = take_from_aside(peer, transfer);
    complete = complete || (transfer.state != 0 && transfer.offset == transfer.bytes);
  }
  if (!complete) return false;
  counts_.bytes_received += static_cast<int64_t>(transfer.bytes);
  incoming.wanted = false;
  return true;
}

// transfer.state of a receive: 1 once the sender's descriptor has been compared.
bool PointToPoint::take_from_aside(Peer& peer, Transfer& transfer) {
  Incoming& incoming = peer.tags[transfer.tag];
  if (incoming.aside.empty()) return false;
  Aside& aside = incoming.aside.front();
  // The fingerprint is only claimed by the sender; the size is what was received.
  if (aside.fingerprint != transfer.fingerprint || aside.bytes != transfer.bytes)
    disagree(transfer, aside.descriptor);
  transfer.state = 1;
  if (aside.postponed()) {
    incoming.aside.pop_front();
    return false;
  }
  if (aside.received > transfer.offset)
    std::memcpy(transfer.data + transfer.offset, aside.data.data() + transfer.offset,
                aside.received - transfer.offset);
  transfer.offset = aside.received;
  if (!aside.complete()) return false;
  peer.aside_bytes -= aside.bytes;
  incoming.aside.pop_front();
  return true;
}

// Reads one frame of any tag, unless it belongs to another receive in flight, which will read it itself.
// False: nothing to read now.
bool PointToPoint::read_frame(Peer& peer, Transfer& transfer) {
  const net::FrameHeader* header = peer.connection->next_header();
  if (!header) return false;
  Incoming& incoming = peer.tags[header->channel];
  bool mine = header->channel == transfer.tag;
  if (!incoming.aside.empty() && !incoming.aside.back().complete())
    return read_aside(peer, incoming, *header);
  if (!mine && incoming.wanted) return false;
  if (header->flags & kDescribes) return read_first(peer, transfer, *header);
  if (!mine || transfer.state == 0 || header->length > transfer.bytes - transfer.offset)
    throw CommError("a frame out of order");
  size_t length = header->length;
  if (!peer.connection->receive({transfer.data + transfer.offset, length})) return false;
  transfer.offset += length;
  return true;
}

bool PointToPoint::read_first(Peer& peer, Transfer& transfer, const net::FrameHeader& header) {
  const net::FrameHeader first = header;
  if (first.length < sizeof(Descriptor) || first.length > sizeof(Descriptor) + kJoinedBytes)
    throw CommError("a first frame of {} bytes", first.length);
  bool mine = first.channel == transfer.tag;
  peer.first.resize(first.length);
  if (!peer.connection->receive(peer.first)) return false;
  Descriptor theirs;
  std::memcpy(&theirs, peer.first.data(), sizeof(Descriptor));
  size_t joined = first.length - sizeof(Descriptor);
  if (!mine) {
    begin_aside(peer, first, theirs);
    return true;
  }
  if (first.fingerprint != transfer.fingerprint) disagree(transfer, theirs);
  if (joined > transfer.bytes) throw CommError("a first frame of {} bytes", first.length);
  if (joined > 0) std::memcpy(transfer.data, peer.first.data() + sizeof(Descriptor), joined);
  transfer.offset = joined;
  transfer.state = 1;
  return true;
}

void PointToPoint::begin_aside(Peer& peer, const net::FrameHeader& header, const Descriptor& descriptor) {
  // A size from the wire is checked before memory is allocated, although the sender is authenticated.
  if (descriptor.count < 0 || descriptor.count > (int64_t{1} << 40) || descriptor.type > DataType::kInt64)
    throw CommError("a message of {} elements", descriptor.count);
  size_t bytes = static_cast<size_t>(descriptor.count) * size_of(descriptor.type);
  size_t joined = header.length - sizeof(Descriptor);
  if (joined != 0 && joined != bytes) throw CommError("a first frame of {} bytes", header.length);
  Aside aside{descriptor, header.fingerprint, bytes, joined, {}};
  if (joined == bytes || peer.aside_bytes + bytes <= kMostAside) {
    aside.data.resize(bytes);
    peer.aside_bytes += bytes;
  }
  if (joined > 0) std::memcpy(aside.data.data(), peer.first.data() + sizeof(Descriptor), joined);
  peer.tags[header.channel].aside.push_back(std::move(aside));
}

bool PointToPoint::read_aside(Peer& peer, Incoming& incoming, const net::FrameHeader& header) {
  Aside& aside = incoming.aside.back();
  if (aside.postponed()) {
    peer.full = true;
    return false;
  }
  size_t length = header.length;
  if ((header.flags & kDescribes) || length > aside.bytes - aside.received)
    throw CommError("a frame out of order");
  if (!peer.connection->receive({aside.data.data() + aside.received, length})) return false;
  aside.received += length;
  return true;
}

void PointToPoint::disagree(const Transfer& transfer, const Descriptor& theirs) const {
  const auto& members = setup_.members;
  throw MismatchError("{}",
                      describe_mismatch(members[static_cast<size_t>(setup_.rank)].rank, transfer.descriptor,
                                        members[static_cast<size_t>(transfer.peer)].rank, theirs));
}

void PointToPoint::wait_for(std::span<Transfer* const> transfers, Deadline deadline) {
  std::vector<pollfd> polled{{wake_.get(), POLLIN, 0}};
  if (setup_.failure) polled.push_back({setup_.failure->event_fd(), POLLIN, 0});
  Transfer* uncalled = nullptr;
  for (Transfer* transfer : transfers) {
    const Peer& peer = peers_[static_cast<size_t>(transfer->peer)];
    if (!peer.connection) {
      uncalled = transfer;
    } else if (short events = peer.connection->poll_events(!transfer->is_send && !peer.full)) {
      polled.push_back({peer.connection->fd(), events, 0});
    }
  }
  ::poll(polled.data(), polled.size(), uncalled ? 0 : deadline.left_ms());
  if (polled[0].revents != 0) {
    uint64_t count = 0;
    if (::read(wake_.get(), &count, sizeof(count)) < 0) return;  // another wait has read it
    return;
  }
  if (uncalled && broken_.empty()) connect(uncalled->peer, deadline.sooner(kListen), TransferText(*uncalled));
}

void PointToPoint::wake() {
  uint64_t one = 1;
  while (::write(wake_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
  }
}

}  // namespace yoke::comm::tcp
