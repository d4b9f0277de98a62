// Transfers between two ranks in one direction. Part of the module only.
//
// NCCL has no tags; a send occupies the device until its receive is posted and blocks everything behind it on
// the same communicator, and a waiting kernel can also block memory allocation and kernel loading, which may
// be what its peer waits for. To avoid such deadlocks each direction of each pair in use has its own
// communicator, and NCCL gets a message only when both sides are ready: the sender announces it (tag and
// descriptor) over the host backend, the receiver answers once a matching receive is issued, and both pass it
// to NCCL in the order of the answers. The communicator is created at the first answer.
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
  // `control` carries the announcements; it must outlive the channel. `key` identifies pair and direction.
  Channel(const NcclSetup& setup, Backend& control, std::string key, int peer, bool sender);
  ~Channel();

  // One step of a transfer in this direction; true once complete. `rank`: this rank in the group of the
  // transfer, for errors.
  bool advance(Transfer& transfer, int rank);

 private:
  struct Header {
    Descriptor descriptor;
    int64_t bytes = 0;
    int64_t tag = 0;
  };
  // A message this side has started; a receive is listed once its message was announced.
  struct Message {
    uint64_t id;  // Transfer::state
    Header header;
    void* data;
    cudaEvent_t done = nullptr;  // recorded after it on the stream, once NCCL has it
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
  std::list<Header> announced_;     // not received yet
  std::list<Message> messages_;
  std::list<Message*> agreed_;  // to be passed to NCCL, in this order
  uint64_t next_ = 1;

  std::unique_ptr<Group> group_;
  std::vector<cudaEvent_t> events_;  // free ones
  std::exception_ptr error_;
  std::atomic<bool> formed_{false};
  std::thread forming_;  // last: it uses all members above
};

}  // namespace yoke::comm::nccl
