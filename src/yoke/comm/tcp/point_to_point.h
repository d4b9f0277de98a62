// Sends and receives of one group, matched by tag, over separate connections.
#pragma once

#include <deque>
#include <map>
#include <span>
#include <vector>

#include "yoke/comm/tcp/executor.h"
#include "yoke/comm/tcp/links.h"

namespace yoke::comm::tcp {

// One thread at a time (see Backend::advance); wake() from any thread.
class PointToPoint {
 public:
  // Bytes of unexpected messages buffered per peer; beyond this the sender blocks.
  static constexpr size_t kMostAside = 64 << 20;

  PointToPoint(const TcpSetup& setup, Counts& counts);

  // As in Backend. After an error every later call throws the same error.
  bool advance(Transfer& transfer);
  void wait_for(std::span<Transfer* const> transfers, Deadline deadline);
  void wake();

 private:
  // A message, or its first part, that arrived before its receive was issued.
  struct Aside {
    Descriptor descriptor;
    uint64_t fingerprint = 0;
    size_t bytes = 0;
    size_t received = 0;
    std::vector<std::byte> data;  // empty if there was no room: the receive then reads it from the connection
    bool postponed() const { return data.size() < bytes; }
    bool complete() const { return received == bytes; }
  };
  // Messages of one tag, in order of arrival.
  struct Incoming {
    std::deque<Aside> aside;
    bool wanted = false;  // a receive is in flight
  };
  struct Peer {
    net::Connection* connection = nullptr;
    uint64_t posted = 0;  // frames since the connection was opened
    std::map<int, Incoming> tags;
    size_t aside_bytes = 0;
    bool full = false;             // the next frame has no destination
    std::vector<std::byte> first;  // first frame of a message
    double next_look = 0;          // at acknowledgements
  };

  void look_for_cut_link(Peer& peer, const Transfer& transfer, Deadline started);
  bool send(Peer& peer, Transfer& transfer);
  void post_next(Peer& peer, Transfer& transfer);
  bool receive(Peer& peer, Transfer& transfer);
  bool take_from_aside(Peer& peer, Transfer& transfer);
  bool read_frame(Peer& peer, Transfer& transfer);
  bool read_first(Peer& peer, Transfer& transfer, const net::FrameHeader& header);
  bool read_aside(Peer& peer, Incoming& incoming, const net::FrameHeader& header);
  void begin_aside(Peer& peer, const net::FrameHeader& header, const Descriptor& descriptor);
  [[noreturn]] void disagree(const Transfer& transfer, const Descriptor& theirs) const;
  // Opens the connection; false if the peer has to connect and has not.
  bool connect(int peer, Deadline deadline, const Doing& doing);

  const TcpSetup& setup_;
  Counts& counts_;
  Links links_;
  std::vector<Peer> peers_;
  net::Descriptor wake_;  // an eventfd
  std::string broken_;
};

}  // namespace yoke::comm::tcp
