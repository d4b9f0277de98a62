// Reduces losses and stop signals over all ranks while the pipeline continues: nobody waits for the current
// step.
#pragma once

#include <torch/types.h>

#include <deque>

#include "yoke/parallel/schedule/pipeline/rounds.h"

namespace yoke::parallel {

// One thread.
class NewsExchange {
 public:
  // Signals take effect `lag` steps after they were sent, so that nobody waits for messages that cannot have
  // arrived.
  NewsExchange(comm::Communicator& comm, int lag);

  struct Heard {
    torch::Tensor loss;   // of this step, summed over ranks: filled in later, at the latest by settle()
    int stop_signal = 0;  // received by some rank, and known to all by now
  };
  // Sends this rank's loss of a step. All ranks call it in every step.
  Heard tell(double loss, int stop_signal);
  // Waits until every loss has been filled in.
  void settle() { hear_all_but(0); }

 private:
  void hear_all_but(size_t steps);

  Rounds rounds_;
  size_t lag_;
  std::deque<torch::Tensor> losses_;  // of steps whose messages have not been received
  int stop_signal_ = 0;
};

}  // namespace yoke::parallel
