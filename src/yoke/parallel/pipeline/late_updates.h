// Updates that wait for the norm of the whole gradient while the pipeline runs on.
//
// Without a flush stages finish a minibatch one after the other, the first stage last. Where nobody needs the
// new weights before that (2bw; pipedream with vertical sync), the parts of the norm travel meanwhile, and
// clipping by the norm of all stages costs no waiting: a stage comes to the forward pass that needs the new
// weights only behind the first stage, which comes to it behind its last backward of that minibatch.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <deque>
#include <vector>

#include "yoke/parallel/pipeline/rounds.h"
#include "yoke/plan/schedules/schedule.h"

namespace yoke::parallel {

// Whether the norm of all stages comes before anybody needs the update it is for.
bool norm_comes_in_time(const plan::ScheduleRequest& request);

class LateUpdates {
 public:
  struct Update {
    std::vector<torch::Tensor> gradients;  // some may be undefined
    bool keep = false;                     // the weights before it are needed on
    double lr = 0;
  };

  // The communicator, that of all stages, must outlive it. max_norm 0: nothing is clipped.
  LateUpdates(comm::Communicator& world, double max_norm);

  // Returns at once. `square` is this rank's part of the squared norm. All ranks add every update.
  void add(Update update, double square);
  size_t waiting() const { return updates_.size(); }
  // The oldest, clipped; without its gradients where the norm is not finite. Waits until all ranks have added
  // theirs. Throws CommError.
  Update take();
  int64_t dropped() const { return dropped_; }

 private:
  Rounds squares_;
  double max_norm_;
  int64_t dropped_ = 0;
  std::deque<Update> updates_;
};

}  // namespace yoke::parallel
