// A module whose parameters, gradients and optimizer state are sharded over ranks (ZeRO 3, FSDP).
//
//   auto fully = yoke::fully_shard(*net, world.comm());
//   torch::optim::AdamW optimizer(fully->parameters(), 1e-3);
//   for (...) { optimizer.zero_grad(); loss(net->forward(x), y).backward(); optimizer.step(); }
//
// Your loop stays as it is. Parameters are cut in units (see FullyShardOptions); every rank owns an equal
// part of each. A unit is gathered when an operation is about to read one of its parameters, in forward and
// again in backward, and released when others are in use. When backward() has made all gradients of a unit
// they are averaged, each rank keeps its part, and the rest is freed. backward() returns when every average
// is in.
//
// Parameters are read by operations of LibTorch in the thread that called fully_shard(), or under wrap().
// Reading one is collective: every rank must do it in the same order, and every rank must run the same
// backward passes. A unit gets all its gradients in a backward(), or none.
#pragma once

#include <torch/nn/module.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "yoke/comm/communicator.h"
#include "yoke/models/model.h"
#include "yoke/optim/optimizer.h"
#include "yoke/parallel/common/give_values.h"
#include "yoke/parallel/placement/sharded/options.h"
#include "yoke/parallel/placement/sharded/unit_plan.h"
#include "yoke/parallel/sync/sharded/piece_source.h"

namespace yoke {

namespace parallel {
class ShardedUnits;
}

// Bytes of one rank.
struct ShardedMemory {
  int64_t shards = 0;     // its part of the parameters
  int64_t gradients = 0;  // its part of the gradients
  int64_t in_flight = 0;  // most at a time: units that are gathered or reduced
  int64_t largest_unit = 0;
};

class FullyShard {
 public:
  // Collective. Gives rank 0's values to everybody and cuts them. `module` (or model.module) and `axis` must
  // outlive this. Throws ConfigError where models differ, a unit names nothing, or an option cannot be.
  FullyShard(torch::nn::Module& module, comm::Communicator& axis, FullyShardOptions options = {});
  // Units are the model's blocks. Nothing is gathered by itself: run wrap()'s blocks.
  FullyShard(const models::Model& model, comm::Communicator& axis, FullyShardOptions options = {});
  // The same of a part of the model's parameters: those of a stage.
  FullyShard(const models::Model& model, const parallel::ShardedPart& part, comm::Communicator& axis,
             FullyShardOptions options = {});
  ~FullyShard();  // parameters cannot be read any more
  FullyShard(const FullyShard&) = delete;
  FullyShard& operator=(const FullyShard&) = delete;

  // What an optimizer moves: this rank's pieces of the trained parameters, flat. Their gradients are there
  // after backward(), summed over several of them until zero_grad().
  std::vector<torch::Tensor> parameters() const;
  // The same with their names: "conv1.weight@0:12" are its first twelve elements as they lie in memory.
  const std::vector<optim::NamedTensor>& named_parameters() const;
  // Where they belong, for state that knows nothing of ranks (sharded_state.h).
  parallel::PieceSource pieces() const;
  // The same of parameters that are not trained.
  parallel::PieceSource frozen_pieces() const;

  // The norm of all ranks' gradients; they are scaled down to `max_norm` where it is positive. Collective.
  double clip_grad_norm(double max_norm);

  // The same model with blocks that gather what they need. Must not outlive this.
  models::Model wrap(const models::Model& model);

  // Copies of all parameters, whole, in the shards' type, on every rank. Collective, between steps.
  parallel::NamedTensors full_parameters();
  // This rank's part of whole parameters, by name; those that are not named stay. Not collective: every rank
  // gives the same. Throws CheckpointError for a name or size that is not the module's.
  void load(const parallel::NamedTensors& whole);

  // Averaged gradients of the trained parameters, whole, in their order: on rank 0, elsewhere nothing.
  // Collective, between backward() and the update. For comparing: slow.
  std::vector<torch::Tensor> full_gradients();

  // While it lives every unit is in memory and reading parameters is not collective: for evaluation on ranks
  // that have unequal numbers of batches. No backward(). Collective.
  class Hold {
   public:
    explicit Hold(FullyShard& fully);
    ~Hold();
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    FullyShard& fully_;
  };
  [[nodiscard]] Hold hold() { return Hold(*this); }

  // Lets go of what is gathered, after a forward() without backward().
  void release();

  ShardedMemory memory() const;
  parallel::ShardedUnits& units() { return *units_; }
  comm::Communicator& comm() const;

 private:
  class Watch;
  parallel::NamedTensors parameters_;
  std::map<std::string, torch::Tensor> by_name_;  // and by other names
  std::unique_ptr<parallel::ShardedUnits> units_;
  std::unique_ptr<Watch> watch_;
};

// The way in for programs: see FullyShard.
std::unique_ptr<FullyShard> fully_shard(torch::nn::Module& module, comm::Communicator& axis,
                                        FullyShardOptions options = {});

}  // namespace yoke
