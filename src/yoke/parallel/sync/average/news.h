// Losses and stop signals of replicas that do not wait for each other in every step: messages of 16 bytes
// that are in flight while training continues.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "yoke/comm/communicator.h"
#include "yoke/comm/give_up.h"
#include "yoke/parallel/strategy.h"

namespace yoke::parallel {

class News {
 public:
  // Collective: on a group of its own, so that they do not wait behind parameters.
  News(comm::Communicator& comm, torch::Device device);
  ~News();

  // Sends this rank's. The loss of the result is the mean over ranks once settle() has returned. With `wait`,
  // which all ranks give in the same step, settles, and the result has the stop signal of any rank in any
  // step since the last time.
  StepNews tell(const StepNews& here, bool wait);
  // Waits for what is in flight. Not collective.
  void settle();
  int64_t bytes_sent() const { return comm_->counters().bytes_sent; }

 private:
  struct Item {
    torch::Tensor numbers;  // loss, whether a stop was requested: means over ranks
    comm::Pending pending;
  };
  std::unique_ptr<comm::Communicator> comm_;
  comm::GiveUpOnException give_up_;
  torch::Device device_;
  std::deque<Item> in_flight_;
  std::vector<torch::Tensor> unread_;  // settled, but not yet checked for a stop
  int own_signal_ = 0;
};

}  // namespace yoke::parallel
