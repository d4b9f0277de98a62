// The receiving half of Executor.
#include <algorithm>
#include <cstring>

#include "yoke/comm/tcp/executor.h"
#include "yoke/kernels/reduce.h"

namespace yoke::comm::tcp {
namespace {

// Frames read from one connection before other connections and our own sends are served.
constexpr int kFramesPerTurn = 2;

}  // namespace

bool Executor::receive_some(Channel& channel) {
  int frames = 0;
  while (frames < kFramesPerTurn && receives_left(channel) && receive_frame(channel)) ++frames;
  return frames > 0;
}

bool Executor::receive_frame(Channel& channel) {
  if (channel.held) return place_held(channel);
  if (channel.combining >= 0) return false;
  const net::FrameHeader* header = channel.connection->next_header();
  if (!header) return false;
  verify(channel, *header);
  if (!channel.checked) return receive_first(channel, *header);
  return receive_here(channel);
}

void Executor::verify(Channel& channel, const net::FrameHeader& header) {
  bool agrees = header.fingerprint == operation_->fingerprint && header.context == sequence_;
  if (!agrees) disagree(channel, header);
  if (header.channel != channel_number_)
    throw MismatchError("{}: {} uses another algorithm. Use the same one on all ranks.",
                        links_.where(OperationText(*operation_)), links_.name_of(channel.peer));
  if (channel.checked == ((header.flags & kDescribes) != 0))
    throw CommError("a frame out of order from {}", channel.connection->peer_text());
}

void Executor::disagree(Channel& channel, const net::FrameHeader& header) {
  Descriptor theirs;
  const Descriptor& ours = operation_->descriptor;
  if ((header.flags & kDescribes) && header.length >= sizeof(Descriptor) &&
      header.length <= sizeof(Descriptor) + kJoinedBytes) {
    std::vector<std::byte> payload(header.length);
    while (!channel.connection->receive(payload)) {
      pollfd more{channel.connection->fd(), POLLIN, 0};
      if (deadline_.passed() || ::poll(&more, 1, 1000) == 0) break;
    }
    std::memcpy(&theirs, payload.data(), sizeof(Descriptor));
  }
  // An old frame that was never received belongs to an operation we have finished: show that one.
  bool behind = header.context < sequence_ && header.context + recent_.size() > sequence_;
  const Descriptor& recent = recent_[header.context % recent_.size()];
  const auto& members = links_.setup().members;
  throw MismatchError(
      "{}", describe_mismatch(members[static_cast<size_t>(links_.setup().rank)].rank, behind ? recent : ours,
                              members[static_cast<size_t>(channel.peer)].rank, theirs));
}

// For connections without further receives in this operation: frames of later operations are normal (a fast
// peer), others are a mismatch.
void Executor::peek(Channel& channel) {
  if (receives_left(channel)) return;
  try {
    const net::FrameHeader* header = channel.connection->next_header();
    if (!header) return;
    if (header->context <= sequence_) disagree(channel, *header);
    channel.ahead = true;
  } catch (const MismatchError&) {
    throw;
  } catch (const CommError& error) {
    lost(channel, error.what());
  }
}

bool Executor::receive_first(Channel& channel, const net::FrameHeader& header) {
  const Unit& unit = this->unit(channel.queue->receives[channel.receiving].unit);
  size_t expected = bytes(unit.frame(channel.receive_frame).count);
  bool joined = expected <= kJoinedBytes;
  if (header.length != sizeof(Descriptor) + (joined ? expected : 0))
    throw CommError("a first frame of {} bytes from {}", header.length, channel.connection->peer_text());
  channel.small.resize(header.length);
  if (!channel.connection->receive(channel.small)) return false;
  channel.checked = true;
  channel.held = joined;
  return !joined || place_held(channel);
}

// A small message arrives together with the descriptor, possibly before its destination may be overwritten:
// it is held until then. Reading from this connection stops meanwhile, which is the back-pressure.
bool Executor::place_held(Channel& channel) {
  const Unit& unit = this->unit(channel.queue->receives[channel.receiving].unit);
  const plan::Range range = unit.frame(channel.receive_frame);
  const std::byte* data = channel.small.data() + sizeof(Descriptor);
  if (unit.action == plan::Action::kReceive) {
    channel.stalled = !ready(unit, range);
    if (channel.stalled) return false;
    if (range.count > 0) std::memcpy(places_->at(range), data, bytes(range.count));
  } else {
    channel.scratch.resize(std::max(channel.scratch.size(), bytes(range.count)));
    if (range.count > 0) std::memcpy(channel.scratch.data(), data, bytes(range.count));
  }
  channel.held = false;
  arrived(channel);
  return true;
}

bool Executor::receive_here(Channel& channel) {
  const Unit& unit = this->unit(channel.queue->receives[channel.receiving].unit);
  const plan::Range range = unit.frame(channel.receive_frame);
  const bool combines = unit.combines();
  if (channel.connection->next_header()->length != bytes(range.count))
    throw CommError("a frame of {} bytes instead of {} from {}", channel.connection->next_header()->length,
                    bytes(range.count), channel.connection->peer_text());
  channel.stalled = !combines && !ready(unit, range);
  if (channel.stalled) return false;
  if (combines) channel.scratch.resize(std::max(channel.scratch.size(), bytes(range.count)));
  std::byte* into = combines ? channel.scratch.data() : places_->at(range);
  if (!channel.connection->receive({into, bytes(range.count)})) return false;
  arrived(channel);
  return true;
}

void Executor::arrived(Channel& channel) {
  int index = channel.queue->receives[channel.receiving].unit;
  const Unit& unit = this->unit(index);
  counts_.bytes_received += static_cast<int64_t>(bytes(unit.frame(channel.receive_frame).count));
  if (unit.action == plan::Action::kReceive) {
    done(index, channel.lane);
  } else {
    channel.combining = index;
    if (!combine(index, channel.lane)) combine_later(index, channel.lane);
  }
  next_receive(channel);
}

void Executor::combine_later(int index, int lane) {
  std::pair<int, int> entry{index, lane};
  auto& waiting = waiting_to_combine_;
  if (std::find(waiting.begin(), waiting.end(), entry) == waiting.end()) waiting.push_back(entry);
}

void Executor::next_receive(Channel& channel) {
  const auto& receives = channel.queue->receives;
  channel.receive_frame += lanes_;
  if (channel.receive_frame < unit(receives[channel.receiving].unit).frames) return;
  channel.receive_frame = channel.lane;
  do {
    ++channel.receiving;
  } while (channel.receiving < receives.size() &&
           unit(receives[channel.receiving].unit).frames <= channel.lane);
}

// A frame is combined once all contributions have arrived, in list order whatever the order of arrival, so
// that results are reproducible.
bool Executor::combine(int index, int lane) {
  const Unit& unit = this->unit(index);
  for (int peer : unit.peers) {
    if (channel_of(peer, lane).combining != index) return false;
  }
  int finished =
      finished_frames_[static_cast<size_t>(index) * static_cast<size_t>(lanes_) + static_cast<size_t>(lane)];
  const plan::Range range = unit.frame(finished * lanes_ + lane);
  if (!ready(unit, range)) return false;
  if (range.count > 0) reduce_frame(unit, range, lane);
  for (int peer : unit.peers) channel_of(peer, lane).combining = -1;
  done(index, lane);
  return true;
}

void Executor::reduce_frame(const Unit& unit, const plan::Range& range, int lane) {
  const bool mean = operation_->reduce == ReduceOp::kMean;
  const bool mean_here = mean && unit.is_final && unit.all_of_them;
  const DataType type = operation_->descriptor.type;
  const ReduceOp op = mean && !mean_here ? ReduceOp::kSum : operation_->reduce;
  const auto count = static_cast<size_t>(range.count);
  void* place = places_->at(range);
  sources_.clear();
  for (int peer : unit.peers) sources_.push_back(channel_of(peer, lane).scratch.data());
  // Our own value comes first, except in merges, which combine in rank order.
  auto ours = sources_.begin();
  if (unit.action == plan::Action::kMerge)
    ours += std::lower_bound(unit.peers.begin(), unit.peers.end(), links_.setup().rank) - unit.peers.begin();
  sources_.insert(ours, place);
  kernels::reduce(std::span<void* const>(&place, 1), sources_, count, type, op);
  if (mean && unit.is_final && !mean_here) kernels::divide(place, count, type, program_->contributors);
}

bool Executor::combine_pending() {
  auto combined = [&](const std::pair<int, int>& waiting) {
    const Unit& unit = this->unit(waiting.first);
    bool elsewhere = std::none_of(unit.peers.begin(), unit.peers.end(), [&](int peer) {
      return channel_of(peer, waiting.second).combining == waiting.first;
    });
    return elsewhere || combine(waiting.first, waiting.second);
  };
  auto rest = std::remove_if(waiting_to_combine_.begin(), waiting_to_combine_.end(), combined);
  bool progress = rest != waiting_to_combine_.end();
  waiting_to_combine_.erase(rest, waiting_to_combine_.end());
  return progress;
}

}  // namespace yoke::comm::tcp
