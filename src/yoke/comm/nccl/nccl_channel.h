// Sends and receives between two ranks, one direction. Part of the module only.
//
// NCCL knows no tags, a send stays on the device until its receive comes, and whatever follows it on the same
// communicator waits behind it. So each direction of each pair that is used has a communicator of its own,
// made at the first transfer; every message is announced by a header (tag and descriptor), and one that
// nobody has asked for yet is taken into memory of the channel, so that tags do not hold each other up.
#pragma once

#include <atomic>
#include <exception>
#include <list>
#include <memory>
#include <thread>

#include "yoke/comm/nccl/nccl_group.h"
#include "yoke/comm/nccl/nccl_staging.h"

namespace yoke::comm::nccl {

class Channel {
 public:
  // Forms in a thread: the peer may come later. `key` names pair and direction.
  Channel(const NcclSetup& setup, const std::string& key, bool sender);
  ~Channel();

  // One step of a transfer in this direction; true when complete. `rank` is this rank in the group of the
  // transfer, for errors.
  bool advance(Transfer& transfer, int rank);

 private:
  struct Header {
    Descriptor descriptor;
    int64_t bytes = 0;
    int64_t tag = 0;
  };
  struct Early {  // arrived before its receive was asked for
    Header header;
    std::shared_ptr<void> data;
  };

  void form(const std::string& key);
  bool send(Transfer& transfer, const std::string& doing);
  bool receive(Transfer& transfer, int rank, const std::string& doing);
  bool take_early(Transfer& transfer, int rank, const std::string& doing);
  bool header_there(const std::string& doing);
  bool nobody_else_wants_it(const Transfer& transfer);
  void begin_data(void* into, uint64_t owner, const std::string& doing);
  void* stage(void* host, size_t bytes);
  bool data_done(const std::string& doing);
  void put_header(const std::string& doing);
  void get_header(const std::string& doing);

  NcclSetup setup_;
  bool sender_;
  std::unique_ptr<Group> group_;
  std::unique_ptr<Scratch> scratch_;
  cudaEvent_t event_ = nullptr;
  std::exception_ptr error_;
  std::atomic<bool> formed_{false};

  uint64_t owner_ = 0;  // Transfer::state whose data is under way, kEarly for data nobody asked for, 0: none
  uint64_t next_ = 1;
  enum class Head : uint8_t { kNone, kAsked, kHere } head_ = Head::kNone;
  Header header_;
  int64_t refused_ = -1;  // the first tag that did not want header_
  std::list<Early> early_;
  Block block_;           // stands for host memory
  void* host_ = nullptr;  // where block_ goes when what is under way has come
  std::thread forming_;   // last: it uses all of the above
};

}  // namespace yoke::comm::nccl
