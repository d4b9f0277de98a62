// Sends and receives over shared memory, independent of the collectives.
//
// Each ordered pair of ranks has a ring of frames. A small message is copied into the ring and is sent once
// written. A large one sends a frame that refers to a stream in the sender's shared memory: the data itself
// if the receiver can access it, otherwise a window through which the sender copies it in pieces; it is sent
// once the receiver has it. Messages without a matching receive are set aside, so that tags do not block each
// other.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "yoke/comm/backend.h"
#include "yoke/comm/shared/control.h"
#include "yoke/comm/shared/spin.h"

namespace yoke::cluster {
class Failure;
}

namespace yoke::comm::shared {

struct Frame;
struct Stream;

// advance() and wait_for() as in Backend; one thread at a time.
class Transfers {
 public:
  Transfers(Control control, int rank, std::shared_ptr<AddressSpace> space,
            std::shared_ptr<cluster::Failure> failure, bool crowded);
  ~Transfers();

  bool advance(Transfer& transfer);
  void wait_for(const Deadline& deadline);
  void wake();  // any thread

 private:
  struct Arrival;
  struct OwnStream;

  bool send(Transfer& transfer);
  bool send_small(Transfer& transfer);
  bool begin_stream(Transfer& transfer);
  bool feed(Transfer& transfer, OwnStream& own);
  bool receive(Transfer& transfer);
  bool take(Transfer& transfer, Arrival arrival);
  bool drain(Transfer& transfer);
  std::unique_ptr<Arrival> next_arrival(int peer);
  void notify(int rank);
  OwnStream& stream_for(Transfer& transfer);
  Stream& stream_of(const Frame& frame) const;

  Control control_;
  int rank_;
  std::shared_ptr<AddressSpace> space_;
  std::shared_ptr<cluster::Failure> failure_;
  Spin spin_;
  uint32_t seen_ = 0;  // value of the inbox before transfers were last advanced
  std::map<std::pair<int, int>, std::deque<Arrival>> aside_;  // peer, tag
  std::vector<std::unique_ptr<OwnStream>> streams_;
};

}  // namespace yoke::comm::shared
