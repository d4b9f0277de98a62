#include "yoke/comm/shared/transfers.h"

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/cluster/failure.h"
#include "yoke/comm/shared/phases.h"
#include "yoke/comm/shared/ring.h"

namespace yoke::comm::shared {
namespace {

constexpr uint64_t kWindowBytes = 1 << 20;
constexpr uint64_t kPieceBytes = 256 << 10;

}  // namespace

// In shared memory of the sender. Byte i of the payload is at data + i % window.
struct Stream {
  std::atomic<uint64_t> produced;
  Location data;
  uint64_t window;
  alignas(kSharedLine) std::atomic<uint64_t> consumed;
  Word refused;  // the receiver's call does not match; `wanted` is its descriptor
  Descriptor wanted;
};

struct Transfers::OwnStream {
  Memory memory;
  Memory staging;  // allocated on first use
  bool staged = false;
  bool in_use = false;
  Stream& stream() const { return *static_cast<Stream*>(memory.data.get()); }
};

struct Transfers::Arrival {
  Frame frame;
  std::vector<std::byte> payload;
};

Transfers::Transfers(Control control, int rank, std::shared_ptr<AddressSpace> space,
                     std::shared_ptr<cluster::Failure> failure, bool crowded)
    : control_(control),
      rank_(rank),
      space_(std::move(space)),
      failure_(std::move(failure)),
      spin_(crowded) {}

Transfers::~Transfers() {
  // A receiver that has not noticed that its sender failed may still read an unfinished stream.
  for (auto& own : streams_) {
    if (!own->in_use) continue;
    space_->retire(std::move(own->memory), control_.head().users);
    if (own->staging.data) space_->retire(std::move(own->staging), control_.head().users);
  }
}

bool Transfers::advance(Transfer& transfer) {
  failure_->check(transfer.is_send ? "send" : "receive");
  return transfer.is_send ? send(transfer) : receive(transfer);
}

bool Transfers::send(Transfer& transfer) {
  if (transfer.bytes <= kLargestInRing) return send_small(transfer);
  if (transfer.state == 0 && !begin_stream(transfer)) return false;
  return feed(transfer, *streams_[transfer.state - 1]);
}

bool Transfers::send_small(Transfer& transfer) {
  Frame frame{
      static_cast<uint32_t>(transfer.tag), 1, transfer.bytes, transfer.fingerprint, {}, transfer.descriptor};
  if (!push(control_.ring(rank_, transfer.peer), frame, transfer.data)) return false;
  transfer.offset = transfer.bytes;
  notify(transfer.peer);
  return true;
}

// The stream is set up before its frame is pushed: the ring's release store publishes it to the receiver.
bool Transfers::begin_stream(Transfer& transfer) {
  OwnStream& own = stream_for(transfer);
  Frame frame{static_cast<uint32_t>(transfer.tag),
              0,
              transfer.bytes,
              transfer.fingerprint,
              space_->locate(&own.stream(), sizeof(Stream)),
              transfer.descriptor};
  if (!push(control_.ring(rank_, transfer.peer), frame, transfer.data)) {
    own.in_use = false;
    transfer.state = 0;
    return false;
  }
  notify(transfer.peer);
  return true;
}

Transfers::OwnStream& Transfers::stream_for(Transfer& transfer) {
  auto found = std::find_if(streams_.begin(), streams_.end(), [](const auto& own) { return !own->in_use; });
  if (found == streams_.end()) {
    streams_.push_back(std::make_unique<OwnStream>());
    found = streams_.end() - 1;
    (*found)->memory = space_->allocate_inside(sizeof(Stream));
  }
  OwnStream& own = **found;
  transfer.state = static_cast<uint64_t>(found - streams_.begin()) + 1;
  Stream& stream = own.stream();
  stream.data = space_->locate(transfer.data, transfer.bytes);
  stream.window = transfer.bytes;
  own.staged = !stream.data.reachable();
  if (own.staged) {
    if (!own.staging.data) own.staging = space_->allocate_inside(kWindowBytes);
    stream.data = space_->locate(own.staging.data.get(), kWindowBytes);
    stream.window = kWindowBytes;
  }
  stream.produced.store(own.staged ? 0 : transfer.bytes, std::memory_order_relaxed);
  stream.consumed.store(0, std::memory_order_relaxed);
  own.in_use = true;
  return own;
}

bool Transfers::feed(Transfer& transfer, OwnStream& own) {
  Stream& stream = own.stream();
  if (stream.refused.load(std::memory_order_acquire) != 0)
    throw MismatchError("{}", describe_mismatch(rank_, transfer.descriptor, transfer.peer, stream.wanted));
  uint64_t consumed = stream.consumed.load(std::memory_order_acquire);
  uint64_t produced = stream.produced.load(std::memory_order_relaxed);
  while (own.staged && produced < transfer.bytes && produced - consumed < stream.window) {
    uint64_t at = produced % stream.window;
    uint64_t some = std::min(
        {kPieceBytes, transfer.bytes - produced, stream.window - (produced - consumed), stream.window - at});
    std::memcpy(static_cast<std::byte*>(own.staging.data.get()) + at, transfer.data + produced, some);
    produced += some;
    stream.produced.store(produced, std::memory_order_release);
    notify(transfer.peer);
  }
  transfer.offset = consumed;
  if (consumed < transfer.bytes) return false;
  own.in_use = false;
  return true;
}

bool Transfers::receive(Transfer& transfer) {
  if (transfer.state != 0) return drain(transfer);
  auto found = aside_.find({transfer.peer, transfer.tag});
  if (found != aside_.end()) {
    Arrival arrival = std::move(found->second.front());
    found->second.pop_front();
    if (found->second.empty()) aside_.erase(found);
    return take(transfer, std::move(arrival));
  }
  while (std::unique_ptr<Arrival> arrival = next_arrival(transfer.peer)) {
    if (arrival->frame.tag == static_cast<uint32_t>(transfer.tag)) return take(transfer, std::move(*arrival));
    aside_[{transfer.peer, static_cast<int>(arrival->frame.tag)}].push_back(std::move(*arrival));
  }
  return false;
}

std::unique_ptr<Transfers::Arrival> Transfers::next_arrival(int peer) {
  Ring& ring = control_.ring(peer, rank_);
  uint64_t at = ring.read.load(std::memory_order_relaxed);
  const uint64_t there = ring.written.load(std::memory_order_acquire) - at;
  if (there == 0) return nullptr;
  auto arrival = std::make_unique<Arrival>();
  Frame& frame = arrival->frame;
  read_at(ring, at, &frame, sizeof(Frame));
  if ((frame.in_ring && frame.bytes > kLargestInRing) || room_for(frame) > there || there > kRingBytes)
    throw CommError("rank {} wrote an invalid message of {} bytes", peer, frame.bytes);
  if (frame.in_ring) {
    arrival->payload.resize(frame.bytes);
    read_at(ring, at + sizeof(Frame), arrival->payload.data(), frame.bytes);
  }
  ring.read.store(at + room_for(frame), std::memory_order_release);
  notify(peer);  // it may be waiting for room
  return arrival;
}

bool Transfers::take(Transfer& transfer, Arrival arrival) {
  const Frame& frame = arrival.frame;
  bool agreed = frame.fingerprint == transfer.fingerprint && frame.bytes == transfer.bytes;
  if (!agreed && !frame.in_ring) {
    Stream& stream = stream_of(frame);
    stream.wanted = transfer.descriptor;
    stream.refused.store(1, std::memory_order_release);
    notify(transfer.peer);
  }
  if (!agreed)
    throw MismatchError("{}", describe_mismatch(transfer.peer, frame.descriptor, rank_, transfer.descriptor));
  if (!frame.in_ring) {
    transfer.state = reinterpret_cast<uint64_t>(&stream_of(frame));
    return drain(transfer);
  }
  if (frame.bytes > 0) std::memcpy(transfer.data, arrival.payload.data(), frame.bytes);
  transfer.offset = frame.bytes;
  return true;
}

Stream& Transfers::stream_of(const Frame& frame) const {
  if (frame.stream.offset % alignof(Stream) != 0)
    throw CommError("a rank referred to a stream at {} of heap {}, where there is none", frame.stream.offset,
                    frame.stream.heap);
  return *reinterpret_cast<Stream*>(space_->resolve(frame.stream, sizeof(Stream)));
}

bool Transfers::drain(Transfer& transfer) {
  auto& stream = *reinterpret_cast<Stream*>(transfer.state);
  const uint64_t window = stream.window;  // read once: another process could change it after the check
  const std::byte* data = space_->resolve(stream.data, window);
  for (;;) {
    uint64_t produced = stream.produced.load(std::memory_order_acquire);
    if (produced == transfer.offset) return false;
    if (window == 0 || produced < transfer.offset || produced > transfer.bytes)
      throw CommError("rank {} sends {} bytes by {}, but {} of {} are available", transfer.peer, produced,
                      window, transfer.offset, transfer.bytes);
    uint64_t at = transfer.offset % window;
    uint64_t some = std::min(produced - transfer.offset, window - at);
    std::memcpy(transfer.data + transfer.offset, data + at, some);
    transfer.offset += some;
    bool complete = transfer.offset == transfer.bytes;
    stream.consumed.store(transfer.offset,
                          std::memory_order_release);  // the last touch: it may be reused now
    notify(transfer.peer);
    if (complete) return true;
  }
}

// Sequentially consistent, paired with wait_for(): either the sleeper sees the new inbox value, or we see the
// sleeper.
void Transfers::notify(int rank) {
  RankBlock& block = control_.rank(rank);
  block.inbox.fetch_add(1, std::memory_order_seq_cst);
  if (block.inbox_sleepers.load(std::memory_order_seq_cst) != 0) wake_all(block.inbox);
}

void Transfers::wake() {
  notify(rank_);
}

void Transfers::wait_for(const Deadline& deadline) {
  RankBlock& block = control_.rank(rank_);
  auto changed = [&] { return block.inbox.load(std::memory_order_seq_cst) != seen_; };
  double begin = now_seconds();
  if (!changed() && !spin(spin_.window(), changed)) {
    block.inbox_sleepers.fetch_add(1, std::memory_order_seq_cst);
    while (!changed() && !deadline.passed() && !failure_->set()) sleep_slice(block.inbox, seen_, deadline);
    block.inbox_sleepers.fetch_sub(1, std::memory_order_relaxed);
  }
  spin_.learn(now_seconds() - begin);
  seen_ = block.inbox.load(std::memory_order_seq_cst);
}

}  // namespace yoke::comm::shared
