// Sends and receives between two ranks, one direction. Part of the module only.
//
// NCCL knows no tags, a send stays on the device until its receive comes, and whatever follows it on the same
// communicator waits behind it; a kernel that waits also holds up who wants to allocate memory or to load
// another kernel, perhaps the one that its peer waits for. So each direction of each pair that is used has a
// communicator of its own, and NCCL gets a message only when both sides are there: the sender announces it
// (tag and descriptor) in host memory, the receiver answers when somebody asks for it, and both give it to
// NCCL, in the order of the answers. The communicator is made at the first answer.
#pragma once

#include <atomic>
#include <exception>
#include <list>
#include <memory>
#include <thread>

#include "yoke/comm/nccl/nccl_announcements.h"
#include "yoke/comm/nccl/nccl_group.h"

namespace yoke::comm::nccl {

class Channel {
 public:
  // `control` carries announcements between these two; it must outlive the channel. `key` names pair and
  // direction.
  Channel(const NcclSetup& setup, Backend& control, std::string key, int peer, bool sender);
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
  // What this side has begun. A receive is in here once its message was announced.
  struct Message {
    uint64_t id;  // Transfer::state
    Header header;
    void* data;
    cudaEvent_t done = nullptr;  // behind it on the stream, once NCCL has it
  };

  void begin_send(Transfer& transfer);
  void begin_receive(Transfer& transfer, int rank);
  void hear();
  void agreed(Message& message);
  void hand_over(const std::string& doing);
  bool complete(const Transfer& transfer, const std::string& doing);
  void begin_forming();
  void form();
  cudaEvent_t new_event();

  NcclSetup setup_;
  std::string key_;
  int peer_;
  bool sender_;
  Announcements<Header> headers_;
  Announcements<int64_t> answers_;  // tags, from the receiver
  std::list<Header> announced_;     // that nobody has asked for yet
  std::list<Message> messages_;
  std::list<Message*> agreed_;  // to be given to NCCL, in this order
  uint64_t next_ = 1;

  std::unique_ptr<Group> group_;
  std::vector<cudaEvent_t> events_;  // not in use
  std::exception_ptr error_;
  std::atomic<bool> formed_{false};
  std::thread forming_;  // last: it uses all of the above
};

}  // namespace yoke::comm::nccl
