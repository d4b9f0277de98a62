// Runs one Program over the connections of a group.
//
// A single thread posts frames that are ready, reads frames that have arrived, combines them, and polls if
// there is nothing to do. A peer's descriptor is compared with ours before its data is used.
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
  std::atomic<int> algorithm{-1};  // of the last collective; -1: none
};

// Frame flag: the payload starts with the sender's Descriptor. Set on the first frame per operation and
// connection.
inline constexpr uint8_t kDescribes = 1;
// Messages up to this size share one frame with the descriptor.
inline constexpr size_t kJoinedBytes = 4096;

class OperationText : public Doing {
 public:
  explicit OperationText(const Operation& operation) : operation_(operation) {}
  std::string text() const override { return operation_.descriptor.text(); }

 private:
  const Operation& operation_;
};

// State of one connection in the current operation.
struct Channel {
  net::Connection* connection = nullptr;
  int peer = 0;
  int lane = 0;
  const PeerQueue* queue = nullptr;  // nullptr: not used in this operation
  size_t sending = 0;                // index into queue->sends; send_frame: frame of that unit
  int send_frame = 0;
  size_t receiving = 0;
  int receive_frame = 0;
  bool described = false;  // our descriptor was posted
  bool checked = false;    // the peer's descriptor was received and agrees
  bool held = false;       // `small` holds a message whose destination is not ready
  bool stalled = false;    // the destination of the next frame is not ready
  bool ahead = false;      // the peer has started a later operation, or has left
  int combining = -1;      // unit for which `scratch` holds a frame; -1: none
  // Units of the frames not sent yet; -1: a copied frame, whose memory is free already
  std::deque<int> posted;
  std::vector<std::byte> small;
  std::vector<std::byte> scratch;
};

// One thread at a time; not reentrant.
class Executor {
 public:
  // Spins briefly before sleeping, unless there are more ranks than cores (crowded).
  Executor(Links& links, Counts& counts, bool crowded);
  // Throws MismatchError, CommError; the connections are unusable afterwards. `algorithm` is compared across
  // ranks.
  void run(const Program& program, const Places& places, const Operation& operation,
           plan::Algorithm algorithm, Deadline deadline);
  // Number of the next operation, carried by its frames. Counted here because a composed operation
  // (hierarchical) runs several programs under one operation number.
  uint64_t next_sequence() const { return sequence_ + 1; }

 private:
  // Resets all channels for the program and opens missing connections.
  void begin();
  void add_channels(const PeerQueue& queue);
  void loop();
  bool turn(Channel& channel);
  bool finished() const;

  // Posts frames whose dependencies allow it and flushes the socket; true if anything moved.
  bool send_some(Channel& channel);
  bool post_next(Channel& channel);
  void post_described(Channel& channel, const plan::Range& range);
  bool settle(Channel& channel);
  void next_send(Channel& channel);
  // Whether this rank has to finish sends of earlier rounds first (Program::rounds_ahead).
  bool too_early(const Unit& unit);

  // Reads a few frames; true if anything moved.
  bool receive_some(Channel& channel);
  bool receive_frame(Channel& channel);
  bool receive_first(Channel& channel, const net::FrameHeader& header);
  bool place_held(Channel& channel);
  bool receive_here(Channel& channel);
  void arrived(Channel& channel);
  void next_receive(Channel& channel);
  // Combines the next frame of a unit, if all contributions are there and its range is free.
  bool combine(int unit, int lane);
  void combine_later(int unit, int lane);
  void reduce_frame(const Unit& unit, const plan::Range& range, int lane);
  bool combine_pending();

  // Checks that a frame belongs to this operation; throws MismatchError or CommError.
  void verify(Channel& channel, const net::FrameHeader& header);
  [[noreturn]] void disagree(Channel& channel, const net::FrameHeader& header);
  void peek(Channel& channel);
  // Whether all dependencies of this frame are finished.
  bool ready(const Unit& unit, const plan::Range& frame) const;
  void done(int unit, int lane);
  int64_t finished_elements(int unit) const;
  void lost(Channel& channel, const std::string& why);
  // Nothing moved: spins, then polls. rested() records how long it took.
  void rest();
  void rested();
  void wait();
  void look_for_cut_links();
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
  bool small_ = false;                                   // this operation sends little data
  bool slept_ = false;                                   // since the last progress
  double idle_since_ = -1;                               // time of the last progress; negative: progressing
  std::vector<Channel> channels_;                        // [peer * lanes + lane]
  std::vector<Channel*> active_;                         // connections used by this operation
  std::vector<Channel*> idle_;                           // open connections not used by it
  std::vector<int> finished_frames_;                     // [unit * lanes + lane]
  std::vector<std::pair<int, int>> waiting_to_combine_;  // unit, lane
  int64_t frames_left_ = 0;
  std::vector<int> sends_left_in_;    // frames, by round
  size_t oldest_send_ = 0;            // the first round with sends left
  std::vector<const void*> sources_;  // of the current reduction
  std::vector<pollfd> polled_;
  std::vector<Channel*> polled_channels_;
  uint64_t sequence_ = 0;
  std::array<Descriptor, 16> recent_{};  // own descriptors, by sequence

  const Program* program_ = nullptr;
  const Places* places_ = nullptr;
  const Operation* operation_ = nullptr;
  uint16_t channel_number_ = 0;  // algorithm, sent in every frame
  size_t element_ = 4;
  Deadline deadline_ = Deadline::after(0);
};

}  // namespace yoke::comm::tcp
