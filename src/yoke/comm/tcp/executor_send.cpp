// The sending half of Executor.
#include <cstring>

#include "yoke/comm/tcp/executor.h"

namespace yoke::comm::tcp {
namespace {

// Frames posted to a connection in advance: enough to keep the socket busy while we combine.
constexpr size_t kAhead = 2;

}  // namespace

net::FrameHeader Executor::header(uint8_t flags) const {
  net::FrameHeader header;
  header.type = net::FrameType::kData;
  header.flags = flags;
  header.channel = channel_number_;
  header.generation = links_.setup().ticket.generation;
  header.fingerprint = operation_->fingerprint;
  header.context = sequence_;
  return header;
}

bool Executor::send_some(Channel& channel) {
  bool progress = false;
  while (channel.connection->unsent_frames() < kAhead && post_next(channel)) progress = true;
  if (channel.connection->has_unsent()) channel.connection->flush();
  return settle(channel) || progress;
}

// A frame posted without a copy is done only when the socket has taken it (settle()): until then its range
// must not be overwritten. Copied frames are done at once.
bool Executor::post_next(Channel& channel) {
  if (channel.sending == channel.queue->sends.size()) return false;
  int index = channel.queue->sends[channel.sending].unit;
  const Unit& unit = this->unit(index);
  const plan::Range range = unit.frame(channel.send_frame);
  if (too_early(unit) || !ready(unit, range)) return false;
  net::Bytes payload{places_->at(range), bytes(range.count)};
  if (channel.send_frame == channel.lane && channel.lane == 0) ++counts_.messages_sent;
  counts_.bytes_sent += static_cast<int64_t>(payload.size());
  bool joined = !channel.described && payload.size() <= kJoinedBytes;
  if (!channel.described) post_described(channel, joined ? range : plan::Range{});
  if (unit.copies && !joined) channel.connection->post_copy(header(0), payload);
  if (!unit.copies && !joined) channel.connection->post(header(0), payload);
  if (joined || unit.copies) {
    done(index, channel.lane);  // copied: its memory is free
    channel.posted.push_back(-1);
  } else {
    channel.posted.push_back(index);
  }
  next_send(channel);
  return true;
}

bool Executor::too_early(const Unit& unit) {
  if (program_->rounds_ahead == 0) return false;
  while (oldest_send_ < sends_left_in_.size() && sends_left_in_[oldest_send_] == 0) ++oldest_send_;
  return unit.round > static_cast<int>(oldest_send_) + program_->rounds_ahead;
}

void Executor::post_described(Channel& channel, const plan::Range& range) {
  std::byte frame[sizeof(Descriptor) + kJoinedBytes];
  size_t length = bytes(range.count);
  std::memcpy(frame, &operation_->descriptor, sizeof(Descriptor));
  if (length > 0) std::memcpy(frame + sizeof(Descriptor), places_->at(range), length);
  channel.connection->post_copy(header(kDescribes), net::Bytes{frame, sizeof(Descriptor) + length});
  channel.described = true;
}

void Executor::next_send(Channel& channel) {
  const auto& sends = channel.queue->sends;
  channel.send_frame += lanes_;
  if (channel.send_frame < unit(sends[channel.sending].unit).frames) return;
  channel.send_frame = channel.lane;
  do {
    ++channel.sending;
  } while (channel.sending < sends.size() && unit(sends[channel.sending].unit).frames <= channel.lane);
}

// Accounts for frames that have been sent.
bool Executor::settle(Channel& channel) {
  bool progress = false;
  while (channel.posted.size() > channel.connection->unsent_frames()) {
    if (channel.posted.front() >= 0) done(channel.posted.front(), channel.lane);
    channel.posted.pop_front();
    progress = true;
  }
  return progress;
}

}  // namespace yoke::comm::tcp
