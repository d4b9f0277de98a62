// Keeps the shards of an elastic run whose state is divided (parallel.zero, stages of a pipeline) through the
// death of a rank.
//
// After every step each rank sends its shard to another one (copy_ring.h), which keeps it as a copy, unless
// it holds the same. Until all ranks have done so the step may have to be taken back, so both the copy and
// the rank's own shard exist in two versions: of the step before, and of this one. A rank enters the update
// of step s + 1 only when all ranks have given their gradients to it, thus when all copies of step s are
// complete: then, and not before, the versions of step s - 1 are dropped.
//
//   own shard   live: s ──update──▶ s + 1        saved: s - 1 ──before the update──▶ s
//   copy        newer: s ──────────────────▶ s + 1 (while it arrives)      older: s
//
// Buffers change before the update, in the forward pass: those of a shard are copied after every step.
//
// Cost of a step: a shard is sent, another received, one copied in memory. Memory: three shards.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "yoke/comm/communicator.h"
#include "yoke/data/loader.h"
#include "yoke/engine/copy_ring.h"
#include "yoke/engine/engine.h"
#include "yoke/engine/shard_holdings.h"
#include "yoke/engine/worker.h"
#include "yoke/metrics/sink.h"

namespace yoke::engine {

struct ShardKeeperOptions {
  int64_t epoch = 0;                    // of membership
  int64_t replicas = 1;                 // 0: no copies
  std::vector<std::string> machines{};  // by rank; empty: all on one
};

class ShardKeeper : public metrics::Sink {
 public:
  // At a step boundary, once the worker's state is restored. Sends the first copies. All arguments must
  // outlive it; `comm` is of the ranks that share the state. Collective. Throws CommError.
  ShardKeeper(Worker& worker, const data::Loader& loader, const Engine& engine, comm::Communicator& comm,
              ShardKeeperOptions options);

  void before_update();                      // Engine::attach_before_update
  void tick(int64_t step, double) override;  // throws CommError
  void write(const metrics::Record&) override {}

  // Between steps: the shards of ranks that leave go to ranks that stay. Collective. Throws CommError.
  void hand_over(const std::vector<bool>& leaves);

  // Everything that is left here, at any time, also after the engine has thrown; it does not depend on
  // worker and communicator. Not collective.
  Holdings holdings();

  int64_t copied_bytes() const { return copied_; }  // sent so far, as copies
  int64_t memory_bytes() const;                     // of saved shards and copies

 private:
  struct Copy {
    torch::Tensor block;
    std::shared_ptr<const StepFacts> facts;  // null: incomplete
  };
  int keeper() const { return ring_.keeper_of[static_cast<size_t>(comm_.rank())]; }  // of its copy
  int owner() const { return ring_.owner_of[static_cast<size_t>(comm_.rank())]; }    // of the copy kept here
  bool copies() const { return options_.replicas > 0 && comm_.size() > 1; }
  // Whether what `from` holds is sent to `to`, which does not hold the same.
  bool copies(int from, int to) const;
  const parallel::ShardPlace& place(int rank) const { return places_[static_cast<size_t>(rank)]; }
  void keep_buffers();
  std::shared_ptr<const StepFacts> facts_now() const;
  void renew_copies();
  void send(int to);
  void receive(int from, const torch::Tensor& block, class InFlight& transfers);

  Worker& worker_;
  const data::Loader& loader_;
  const Engine& engine_;
  comm::Communicator& comm_;
  const ShardKeeperOptions options_;
  const CopyRing ring_;
  std::vector<parallel::StatePiece> shard_;  // live, but for buffers
  struct Buffer {
    torch::Tensor live, kept;  // kept: after the last step
  };
  std::vector<Buffer> buffers_;                                  // of the shard
  std::vector<parallel::ShardPlace> places_;                     // by rank
  std::vector<std::shared_ptr<const ShardOutline>> outlines_{};  // by rank
  std::shared_ptr<const StepFacts> now_, before_;                // of the live shard, and of saved_
  torch::Tensor saved_;
  bool updating_ = false;  // the live shard is of no step
  Copy older_, newer_;
  std::vector<HeldShard> handed_;
  int64_t copied_ = 0;
};

}  // namespace yoke::engine
