// Losses and stop signals of all ranks, told while the pipeline runs on: nobody waits for the step that is
// under way.
#pragma once

#include <torch/types.h>

#include <deque>
#include <vector>

#include "yoke/comm/communicator.h"

namespace yoke::parallel {

// Used by one thread. Its messages have a tag of their own on the communicator.
class NewsExchange {
 public:
  // Signals are acted on `lag` steps after they were told, so that nobody has to wait for news that cannot
  // have come.
  NewsExchange(comm::Communicator& comm, int lag) : comm_(comm), lag_(static_cast<size_t>(lag)) {}
  NewsExchange(const NewsExchange&) = delete;
  NewsExchange& operator=(const NewsExchange&) = delete;
  ~NewsExchange();  // waits: memory must stay while data moves

  struct Heard {
    torch::Tensor loss;   // of the step just told, summed over ranks: filled in when it has come (settle())
    int stop_signal = 0;  // somebody was told to stop, and all know it by now
  };
  // Tells this rank's loss of a step; collective in the sense that all ranks tell every step.
  Heard tell(double loss, int stop_signal);
  // Waits until every loss that was told is there.
  void settle();

 private:
  struct Step {
    std::vector<double> own;
    std::vector<std::vector<double>> others;  // by rank
    std::vector<comm::Pending> sending;
    std::vector<comm::Pending> coming;
    torch::Tensor loss;
    int stop_signal = 0;
  };
  void finish(Step& step);

  comm::Communicator& comm_;
  size_t lag_;
  std::deque<Step> steps_;  // that are not finished
  int stop_signal_ = 0;
};

}  // namespace yoke::parallel
