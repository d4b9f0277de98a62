// Protocol of a collective over tcp.
//
// Every unit of the program is a sequence of frames. Frame i of a message uses lane i mod lanes, in order.
// The first frame of an operation on a connection carries our descriptor (with the data, if it is small), so
// that a mismatch is detected before any data is used; every header carries fingerprint and sequence number
// of the operation. There are no acknowledgements: a peer may already send frames of later operations, which
// stay in the connection until we get there.
//
// The loop never blocks on one connection: sends, receives and combinations that cannot proceed are skipped,
// and only if nothing at all made progress it spins or polls. Blocking on a single peer could deadlock a
// cycle of full sockets.
#include "yoke/comm/tcp/executor.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>

#include "yoke/base/clock.h"

namespace yoke::comm::tcp {
namespace {

constexpr size_t kSmallBytes = 16 << 10;
constexpr int kLongestPoll = 250;  // ms

// Involuntary context switches of this thread.
long preemptions() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw;
}

}  // namespace

Executor::Executor(Links& links, Counts& counts, bool crowded)
    : links_(links),
      counts_(counts),
      lanes_(links.setup().lanes),
      patience_(crowded),
      channels_(static_cast<size_t>(links.setup().size) * static_cast<size_t>(lanes_)) {
  for (size_t at = 0; at < channels_.size(); ++at) {
    channels_[at].peer = static_cast<int>(at) / lanes_;
    channels_[at].lane = static_cast<int>(at) % lanes_;
  }
}

Channel& Executor::channel_of(int peer, int lane) {
  return channels_[static_cast<size_t>(peer) * static_cast<size_t>(lanes_) + static_cast<size_t>(lane)];
}

void Executor::run(const Program& program, const Places& places, const Operation& operation,
                   plan::Algorithm algorithm, Deadline deadline) {
  channel_number_ = static_cast<uint16_t>(algorithm);
  ++sequence_;
  program_ = &program;
  places_ = &places;
  operation_ = &operation;
  element_ = size_of(operation.descriptor.type);
  deadline_ = deadline;
  small_ = bytes(program.elements_sent) <= kSmallBytes;
  begin();
  loop();
  recent_[sequence_ % recent_.size()] = operation.descriptor;
}

void Executor::begin() {
  active_.clear();
  idle_.clear();
  waiting_to_combine_.clear();
  finished_frames_.assign(program_->units.size() * static_cast<size_t>(lanes_), 0);
  frames_left_ = 0;
  sends_left_in_.clear();
  oldest_send_ = 0;
  for (const Unit& unit : program_->units) {
    frames_left_ += unit.frames;
    if (unit.action != plan::Action::kSend) continue;
    const auto round = static_cast<size_t>(unit.round);
    if (round >= sends_left_in_.size()) sends_left_in_.resize(round + 1);
    sends_left_in_[round] += unit.frames;
  }
  for (Channel& channel : channels_) {
    channel.queue = nullptr;
    channel.sending = channel.receiving = 0;
    channel.send_frame = channel.receive_frame = channel.lane;
    channel.described = channel.checked = channel.held = channel.ahead = channel.stalled = false;
    channel.combining = -1;
  }
  // Connect to higher ranks first, then accept from lower ones: two ranks never wait for each other's
  // connect.
  for (bool calls : {true, false}) {
    for (const PeerQueue& queue : program_->peers) {
      if ((queue.peer > links_.setup().rank) == calls) add_channels(queue);
    }
  }
  for (Channel& channel : channels_) {
    if (!channel.queue && channel.connection) idle_.push_back(&channel);
  }
}

void Executor::add_channels(const PeerQueue& queue) {
  for (int lane = 0; lane < std::min(lanes_, queue.most_frames); ++lane) {
    Channel& channel = channel_of(queue.peer, lane);
    if (!channel.connection)
      channel.connection = &links_.open(queue.peer, lane, deadline_, OperationText(*operation_));
    channel.queue = &queue;
    active_.push_back(&channel);
    // Messages of few frames do not use every lane.
    auto skip = [&](const std::vector<Slot>& slots, size_t& at) {
      while (at < slots.size() && unit(slots[at].unit).frames <= lane) ++at;
    };
    skip(queue.sends, channel.sending);
    skip(queue.receives, channel.receiving);
  }
}

bool Executor::sends_left(const Channel& channel) const {
  return channel.queue && (channel.sending < channel.queue->sends.size() || channel.connection->has_unsent());
}

bool Executor::receives_left(const Channel& channel) const {
  return channel.queue && channel.receiving < channel.queue->receives.size();
}

bool Executor::finished() const {
  return frames_left_ == 0 &&
         std::none_of(active_.begin(), active_.end(), [&](Channel* channel) { return sends_left(*channel); });
}

void Executor::loop() {
  idle_since_ = -1;
  while (!finished()) {
    bool progress = false;
    for (Channel* channel : active_) progress |= turn(*channel);
    progress |= combine_pending();
    links_.check(OperationText(*operation_));
    if (progress)
      rested();
    else if (!finished())
      rest();
  }
}

// Sends first: the peer may need our data before it can produce what we wait for.
bool Executor::turn(Channel& channel) {
  try {
    bool sent = send_some(channel);
    return receive_some(channel) || sent;
  } catch (const MismatchError&) {
    throw;
  } catch (const CommError& error) {
    lost(channel, error.what());
    return false;
  }
}

// A peer that has done its part may close the connection while others still work.
void Executor::lost(Channel& channel, const std::string& why) {
  if (sends_left(channel) || receives_left(channel))
    links_.lost(channel.peer, why, deadline_, OperationText(*operation_));
  channel.ahead = true;
}

void Executor::rest() {
  double now = now_seconds();
  if (idle_since_ < 0) idle_since_ = now;
  if (now - idle_since_ < patience_.window(small_)) {
    ::sched_yield();  // the peer may need this very core
    return;
  }
  slept_ = true;
  wait();
}

void Executor::rested() {
  if (idle_since_ < 0) return;
  // Very short waits carry no information and do not justify a system call.
  if (small_ && (slept_ || now_seconds() - idle_since_ > Patience::kShort))
    patience_.learn(!slept_, preemptions());
  idle_since_ = -1;
  slept_ = false;
}

void Executor::wait() {
  if (deadline_.passed()) too_late();
  if (now_seconds() - idle_since_ > links_.cut_off()) look_for_cut_links();
  polled_.clear();
  polled_channels_.clear();
  if (links_.setup().failure) polled_.push_back({links_.setup().failure->event_fd(), POLLIN, 0});
  size_t first = polled_.size();
  auto add = [&](Channel& channel, short events) {
    if (events == 0) return;
    polled_.push_back({channel.connection->fd(), events, 0});
    polled_channels_.push_back(&channel);
  };
  for (Channel* channel : active_) {
    bool blocked = channel->held || channel->stalled || channel->combining >= 0;
    bool reads = receives_left(*channel) ? !blocked : !channel->ahead;
    add(*channel, channel->connection->poll_events(reads));
  }
  for (Channel* channel : idle_) add(*channel, channel->ahead ? short{0} : short{POLLIN});
  ::poll(polled_.data(), polled_.size(), std::min(deadline_.left_ms(), kLongestPoll));
  for (size_t at = first; at < polled_.size(); ++at) {
    if (polled_[at].revents != 0) peek(*polled_channels_[at - first]);
  }
}

void Executor::look_for_cut_links() {
  for (Channel* channel : active_)
    if (sends_left(*channel) || receives_left(*channel))
      links_.check_acknowledged(channel->peer, *channel->connection, deadline_, OperationText(*operation_));
}

void Executor::too_late() const {
  std::string whom;
  for (const Channel* channel : active_) {
    if (!receives_left(*channel) && !sends_left(*channel)) continue;
    if (!whom.empty()) whom += ", ";
    whom += links_.name_of(channel->peer);
    if (!receives_left(*channel)) whom += " (does not read)";
  }
  throw CommError("{}: not done after {:.1f} s, still waiting for {}. Raise the timeout if that is normal.",
                  links_.where(OperationText(*operation_)), deadline_.elapsed(), whom);
}

bool Executor::ready(const Unit& unit, const plan::Range& frame) const {
  for (int other : unit.waits_for) {
    const plan::Range& range = this->unit(other).range;
    int64_t finished = finished_elements(other);
    if (overlap({range.begin + finished, range.count - finished}, frame)) return false;
  }
  return true;
}

// Lanes finish frames independently: only the frames before the first unfinished one count as a finished
// prefix.
int64_t Executor::finished_elements(int index) const {
  const int* finished = &finished_frames_[static_cast<size_t>(index) * static_cast<size_t>(lanes_)];
  int frames = unit(index).frames;
  for (int lane = 0; lane < lanes_; ++lane) frames = std::min(frames, finished[lane] * lanes_ + lane);
  return std::min(frames * unit(index).frame_elements, unit(index).range.count);
}

void Executor::done(int index, int lane) {
  ++finished_frames_[static_cast<size_t>(index) * static_cast<size_t>(lanes_) + static_cast<size_t>(lane)];
  --frames_left_;
  if (unit(index).action == plan::Action::kSend) --sends_left_in_[static_cast<size_t>(unit(index).round)];
}

}  // namespace yoke::comm::tcp
