// Point-to-point transfers with the memory that they use.
#pragma once

#include <torch/types.h>

#include <algorithm>
#include <deque>
#include <exception>

#include "yoke/comm/give_up.h"
#include "yoke/comm/tensors/tensors.h"

namespace yoke::engine {

class InFlight {
 public:
  InFlight(comm::Communicator& comm, const char* what) : comm_(comm), give_up_(comm), what_(what) {}
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;
  // If an exception ends the work, operations that cannot complete fail on the other ranks too.
  ~InFlight() {
    auto done = [this] {
      return std::ranges::all_of(transfers_, [](auto& one) { return one.pending.done(); });
    };
    give_up_.before_wait(done, what_);
    for (const Transfer& one : transfers_) try {
        one.pending.wait();
      } catch (const std::exception&) {  // known to whoever waited for it
      }
  }

  // Of contiguous host memory.
  void send(const torch::Tensor& tensor, int peer, int tag) {
    transfers_.push_back({tensor, comm_.send(comm::buffer_of(tensor), peer, tag, {.name = what_})});
  }
  void receive(const torch::Tensor& tensor, int peer, int tag) {
    transfers_.push_back({tensor, comm_.receive(comm::buffer_of(tensor), peer, tag, {.name = what_})});
  }
  // Until at most `left` are in flight, the oldest first. Throws CommError.
  void wait(size_t left = 0) {
    while (transfers_.size() > left) {
      transfers_.front().pending.wait();
      transfers_.pop_front();
    }
  }

 private:
  struct Transfer {
    torch::Tensor tensor;
    comm::Pending pending;
  };
  comm::Communicator& comm_;
  comm::GiveUpOnException give_up_;
  const char* what_;
  std::deque<Transfer> transfers_;
};

}  // namespace yoke::engine
