// Runs one program over the connections of a group.
//
// One thread moves everything: it posts frames that are ready, reads frames that have come, combines them,
// and waits in poll() when there is nothing to do. What a peer sends is compared with what was asked for here
// before it is used.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <vector>

#include "yoke/comm/tcp/links.h"
#include "yoke/comm/tcp/patience.h"
#include "yoke/comm/tcp/places.h"

namespace yoke::comm::tcp {

struct Counts {
  std::atomic<int64_t> operations{0};
  std::atomic<int64_t> bytes_sent{0};
  std::atomic<int64_t> bytes_received{0};
  std::atomic<int64_t> messages_sent{0};
  std::atomic<int> algorithm{-1};  // of the last collective, or -1
};

// Flag of a frame that begins with the sender's Descriptor: the first of each operation on each connection.
inline constexpr uint8_t kDescribes = 1;
// Messages up to this size travel in one frame with the descriptor.
inline constexpr size_t kJoinedBytes = 4096;

class OperationText : public Doing {
 public:
  explicit OperationText(const Operation& operation) : operation_(operation) {}
  std::string text() const override { return operation_.descriptor.text(); }

 private:
  const Operation& operation_;
};

// One connection's part in the operation under way.
struct Channel {
  net::Connection* connection = nullptr;
  int peer = 0;
  int lane = 0;
  const PeerQueue* queue = nullptr;  // nullptr: no part in this operation
  size_t sending = 0;                // the slot of queue->sends, and the frame of it
  int send_frame = 0;
  size_t receiving = 0;
  int receive_frame = 0;
  bool described = false;  // our descriptor is on its way
  bool checked = false;    // theirs has come and agrees
  bool held = false;       // `small` holds a message that cannot be placed yet
  bool stalled = false;    // the next frame's place is not free yet
  bool ahead = false;      // the peer already sends for a later operation, or has left
  int combining = -1;      // the unit that `scratch` holds a frame of
  std::deque<int> posted;  // units of the frames that are not sent yet; -1: a descriptor
  std::vector<std::byte> small;
  std::vector<std::byte> scratch;
};

class Executor {
 public:
  // Spins a little before it sleeps, unless the ranks are crowded: more of them than cores.
  Executor(Links& links, Counts& counts, bool crowded);
  // Throws MismatchError, CommError. The connections are then of no use any more.
  // `algorithm` is compared between ranks.
  void run(const Program& program, const Places& places, const Operation& operation,
           plan::Algorithm algorithm, Deadline deadline);
  // Of the operation that comes next; frames carry it. Counted here, because a composed operation runs
  // several under one number.
  uint64_t next_sequence() const { return sequence_ + 1; }

 private:
  void begin();
  void add_channels(const PeerQueue& queue);
  void loop();
  bool turn(Channel& channel);
  bool finished() const;

  bool send_some(Channel& channel);
  bool post_next(Channel& channel);
  void post_described(Channel& channel, const plan::Range& range);
  bool settle(Channel& channel);
  void next_send(Channel& channel);

  bool receive_some(Channel& channel);
  bool receive_frame(Channel& channel);
  bool receive_first(Channel& channel, const net::FrameHeader& header);
  bool place_held(Channel& channel);
  bool receive_here(Channel& channel);
  void arrived(Channel& channel);
  void next_receive(Channel& channel);
  bool combine(int unit, int lane);
  void combine_later(int unit, int lane);
  void reduce_frame(const Unit& unit, const plan::Range& range, int lane);
  bool combine_pending();

  void verify(Channel& channel, const net::FrameHeader& header);
  [[noreturn]] void disagree(Channel& channel, const net::FrameHeader& header);
  void peek(Channel& channel);
  bool ready(const Unit& unit, const plan::Range& frame) const;
  void done(int unit, int lane);
  int64_t finished_elements(int unit) const;
  void lost(Channel& channel, const std::string& why);
  void rest();
  void rested();
  void wait();
  [[noreturn]] void too_late() const;

  net::FrameHeader header(uint8_t flags) const;
  Channel& channel_of(int peer, int lane);
  const Unit& unit(int index) const { return program_->units[static_cast<size_t>(index)]; }
  size_t bytes(int64_t elements) const { return static_cast<size_t>(elements) * element_; }
  bool sends_left(const Channel& channel) const;
  bool receives_left(const Channel& channel) const;

  Links& links_;
  Counts& counts_;
  const int lanes_;
  Patience patience_;
  bool small_ = false;                // this operation sends little
  bool slept_ = false;                // since the last progress
  double idle_since_ = -1;            // when the last progress was made; below 0: there is progress
  std::vector<Channel> channels_;     // [peer * lanes + lane]
  std::vector<Channel*> active_;      // those with a part in this operation
  std::vector<Channel*> idle_;        // open ones without
  std::vector<int> finished_frames_;  // [unit * lanes + lane]
  std::vector<std::pair<int, int>> waiting_to_combine_;  // unit, lane
  int64_t frames_left_ = 0;
  std::vector<const void*> sources_;  // of the reduction under way
  std::vector<pollfd> polled_;
  std::vector<Channel*> polled_channels_;
  uint64_t sequence_ = 0;
  std::array<Descriptor, 16> recent_{};  // ours, by sequence

  const Program* program_ = nullptr;
  const Places* places_ = nullptr;
  const Operation* operation_ = nullptr;
  uint16_t channel_number_ = 0;  // of frames: the algorithm
  size_t element_ = 4;
  Deadline deadline_ = Deadline::after(0);
};

}  // namespace yoke::comm::tcp
