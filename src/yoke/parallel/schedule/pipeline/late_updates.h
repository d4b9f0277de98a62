// Updates that wait for the global gradient norm while the pipeline continues.
//
// Without a flush, stages finish a minibatch one after the other, the first stage last. If nobody needs the
// new weights before that (2bw; pipedream with vertical sync), the parts of the norm are exchanged meanwhile,
// and clipping by the global norm costs no waiting: the forward pass that needs the new weights reaches a
// stage only after the first stage, which starts it after its last backward of that minibatch.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <deque>
#include <vector>

#include "yoke/parallel/schedule/pipeline/rounds.h"
#include "yoke/plan/schedules/schedule.h"

namespace yoke::parallel {

// Whether the global norm is available before anybody needs the update it is for.
bool norm_comes_in_time(const plan::ScheduleRequest& request);

class LateUpdates {
 public:
  struct Update {
    std::vector<torch::Tensor> gradients;  // some may be undefined
    bool keep = false;                     // the previous weights are still needed
    double lr = 0;
  };

  // The communicator of all stages must outlive it. max_norm 0: no clipping.
  LateUpdates(comm::Communicator& world, double max_norm);

  // Non-blocking. `square` is this rank's part of the squared norm. All ranks add every update.
  void add(Update update, double square);
  size_t waiting() const { return updates_.size(); }
  // The oldest update, clipped; without gradients if the norm is not finite. Blocks until all ranks have
  // added theirs. Throws CommError.
  Update take();
  int64_t dropped() const { return dropped_; }

 private:
  Rounds squares_;
  double max_norm_;
  int64_t dropped_ = 0;
  std::deque<Update> updates_;
};

}  // namespace yoke::parallel
