// Losses and stop signals of all ranks, told while the pipeline runs on: nobody waits for the step that is
// under way.
#pragma once

#include <torch/types.h>

#include <deque>

#include "yoke/parallel/pipeline/rounds.h"

namespace yoke::parallel {

// Used by one thread.
class NewsExchange {
 public:
  // Signals are acted on `lag` steps after they were told, so that nobody has to wait for news that cannot
  // have come.
  NewsExchange(comm::Communicator& comm, int lag);

  struct Heard {
    torch::Tensor loss;   // of the step just told, summed over ranks: filled in when it has come (settle())
    int stop_signal = 0;  // somebody was told to stop, and all know it by now
  };
  // Tells this rank's loss of a step; collective in the sense that all ranks tell every step.
  Heard tell(double loss, int stop_signal);
  // Waits until every loss that was told is there.
  void settle() { hear_all_but(0); }

 private:
  void hear_all_but(size_t steps);

  Rounds rounds_;
  size_t lag_;
  std::deque<torch::Tensor> losses_;  // of steps that were not heard of
  int stop_signal_ = 0;
};

}  // namespace yoke::parallel
