// Gradients that several ranks have a part of: replicas of a stage, and stages that share a weight.
#pragma once

#include <memory>
#include <set>
#include <vector>

#include "yoke/comm/communicator.h"
#include "yoke/parallel/common/give_values.h"
#include "yoke/parallel/pipeline/ownership.h"

namespace yoke::parallel {

// One thread. The sums of what ranks of one stage have travel while passes go on; those of weights that
// stages share are waited for.
class GradientExchange {
 public:
  // Collective over `world`, whose ranks are those of the layout. Both must outlive it.
  GradientExchange(comm::Communicator& world, const PipelineLayout& layout,
                   const std::vector<OwnedTensor>& tensors);
  ~GradientExchange();  // waits: memory must stay while data moves

  // The gradients of this chunk are complete: their sums over the ranks of the stage set out. Gradients are
  // those of the model's parameters, and must not be touched until finish(). Collective among those ranks.
  void begin(int chunk);
  // Begins what was not begun and waits: each gradient is the sum of those of all ranks that hold its
  // parameter. Collective among those. Returns the seconds it took.
  double finish();

  // The values of the stage's first rank for all ranks of the stage. Collective among those.
  void give_to_stage(const NamedTensors& tensors) const;

  // Clips what each set of stages holds by its own norm, where that of the whole does not come in time.
  void clip_each(double max_norm) const;

  // This rank's part of the squared norm of the whole model's gradient: the parts of all ranks count each
  // parameter once.
  double square() const;

  struct Judgement {
    double norm = 0;  // of the gradients of the whole model, each counted once
    bool overflow = false;
  };
  // Collective over the world. `overflow`: this rank has met one.
  Judgement judge(bool overflow) const;

  // Whether some parameter of the model is held by several stages.
  bool ties() const { return ties_; }
  // Parameters that this rank holds.
  const std::vector<torch::Tensor>& parameters() const { return parameters_; }

 private:
  struct Group {
    std::unique_ptr<comm::Communicator> comm;            // null: nobody to talk to
    std::vector<std::vector<torch::Tensor>> parameters;  // by chunk
    bool tied = false;
  };
  // Some gradients of one type on their way.
  struct Message {
    torch::Tensor flat;
    std::vector<torch::Tensor> gradients;
    comm::Pending pending;
  };
  void send(const Group& group, size_t chunk);
  void send(comm::Communicator& comm, std::vector<torch::Tensor> gradients);

  comm::Communicator& world_;
  std::vector<Group> groups_;  // the stage's own first
  std::vector<Message> moving_;
  std::set<int> begun_;  // chunks
  std::vector<torch::Tensor> parameters_;
  bool ties_ = false;
  std::vector<torch::Tensor> counted_;  // in the norm, by this rank
};

}  // namespace yoke::parallel
