// Gradients that several ranks contribute to: replicas of a stage, and stages that share a weight.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "yoke/comm/communicator.h"
#include "yoke/comm/give_up.h"
#include "yoke/parallel/common/ddp/comm_hook.h"
#include "yoke/parallel/common/give_values.h"
#include "yoke/parallel/common/global_norm.h"
#include "yoke/parallel/common/part_shards.h"
#include "yoke/parallel/placement/stage/ownership.h"
#include "yoke/parallel/sync/sharded/shard_hook.h"

namespace yoke::parallel {

// One thread. Sums within a stage are in flight while passes continue; those of weights shared by stages are
// waited for. With shards each rank gets the sums of the pieces it owns only.
class GradientExchange {
 public:
  // Collective over `world`, whose ranks are those of the layout. All arguments must outlive it. `shards`: of
  // the stage's parameters, where it has several ranks. `hook`: how gradients travel between them (ddp.hook);
  // weights shared by stages travel as they are.
  GradientExchange(comm::Communicator& world, const PipelineLayout& layout,
                   const std::vector<OwnedTensor>& tensors, SliceAxis slices = {}, PartShards shards = {},
                   const std::string& hook = "none");
  // Waits, because memory must stay while data moves; during unwinding it abandons the communicator first.
  ~GradientExchange();

  // The gradients of this chunk are complete: starts their sums over the ranks of the stage. The gradients of
  // the model's parameters must not be accessed until finish(). Collective among those ranks.
  void begin(int chunk);
  // Starts the remaining sums and waits: each gradient is the sum over all ranks that hold its parameter.
  // Collective among those. Returns the seconds it took.
  double finish();

  // Broadcasts the values of the stage's first rank to all ranks of the stage. Collective among those.
  void give_to_stage(const NamedTensors& tensors) const;

  // Clips what each set of stages holds by its own norm, if the global norm is not available in time.
  void clip_each(double max_norm) const;

  // This rank's part of the squared norm of the whole model's gradient: over all ranks each parameter counts
  // once.
  double square() const;

  struct Judgement {
    double norm = 0;  // of the gradients of the whole model, each counted once
    bool overflow = false;
  };
  // Collective over the world. `overflow`: found on this rank.
  Judgement judge(bool overflow) const;

  // Bytes sent so far to replicas of the stage, and to stages that share a weight.
  int64_t bytes_to_replicas() const;
  int64_t bytes_to_stages() const;

  // Whether some parameter of the model is held by several stages.
  bool ties() const { return ties_; }
  // What this rank's optimizer updates: its parameters, or its pieces of them.
  const std::vector<torch::Tensor>& parameters() const { return parameters_; }

 private:
  // Which message of a step it is: its chunk, and its place among those of the chunk.
  using MessageKey = std::pair<size_t, size_t>;
  struct Group {
    std::unique_ptr<comm::Communicator> comm;            // nullptr: no peers
    std::vector<std::vector<torch::Tensor>> parameters;  // by chunk
    bool tied = false;
    // Of messages, the same on all ranks of the group. Hooks keep what they left out by number.
    std::map<MessageKey, int> numbers{};
  };
  // Some gradients of one type in flight.
  struct Message {
    GradientBucket bucket;
    std::vector<torch::Tensor> gradients;
    CommHook* hook = nullptr;  // nullptr: it has ended
  };
  void finish_messages();
  void scatter();
  std::vector<torch::Tensor> parts_of(const torch::Tensor& parameter) const;
  // Takes the gradients of a bucket of the shards away from their parameters.
  GradientBucket collect(size_t index, const std::vector<int64_t>& parameters);
  void send(Group& group, size_t chunk);
  void send(Group& group, const MessageKey& key, std::vector<torch::Tensor> gradients);

  comm::Communicator& world_;
  SliceAxis slices_;
  PartShards shards_;
  bool first_of_stage_;
  std::set<const void*> tied_;  // parameters
  comm::GiveUpOnException give_up_;
  std::shared_ptr<CommHook> as_is_, hook_;
  std::shared_ptr<ShardHook> shard_hook_;         // with shards
  std::optional<torch::ScalarType> narrow_type_;  // of gradients to be scattered
  std::vector<Group> groups_;                     // the stage's own group first
  std::vector<Message> moving_;
  std::set<int> begun_;  // chunks
  std::vector<torch::Tensor> parameters_;
  bool ties_ = false;
  std::vector<torch::Tensor> counted_;  // counted in the norm by this rank
};

}  // namespace yoke::parallel
