// A rank that trains with the others of an elastic job before it has their state.
//
//   step          s                s + 1            s + 2             s + 3
//   others    [its state] ────▶ train ─────────▶ train ─────────▶ train ──────────▶ …  all read their part
//   source       sends .............................│                               of the batch
//   follower  zeros          keeps the gradients  keeps the       has the state of s: updates
//                            that all have summed  gradients       three times, and is level
//
// It takes part in every reduction with gradients that are zero (its batches have no weight), so it gets the
// sums of the others. They are all that an update needs besides the state: once that has arrived, the updates
// of the steps since are made up for, and its state equals that of the others bit for bit.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "yoke/checkpoint/checkpoint.h"
#include "yoke/comm/communicator.h"
#include "yoke/engine/worker.h"
#include "yoke/parallel/common/forwarding.h"

namespace yoke::engine {

// Sends a state in the background from one rank to others. Not thread-safe.
class StateTransfer {
 public:
  // `state`: of the first rank of the group, which must not change meanwhile; the others' has the same shapes
  // and is overwritten. `sent`: names that all have already. Collective.
  StateTransfer(std::unique_ptr<comm::Communicator> group, checkpoint::State state,
                const nlohmann::json& sent);

  bool done() const;  // also after a failure
  void wait() const;  // throws CommError
  const checkpoint::State& state() const { return state_; }

 private:
  checkpoint::State state_;
  std::unique_ptr<comm::Communicator> group_;  // its operations end before the state does
  std::vector<comm::Pending> pending_;
};

class Follower : public parallel::Forwarding {
 public:
  // Replicas whose optimizer updates by gradients alone. All arguments must outlive it.
  Follower(std::unique_ptr<parallel::Strategy> strategy, Worker& worker, const StateTransfer& transfer);

  // Whether its parameters are not those of the others yet.
  bool behind() const { return behind_; }

  parallel::CommitResult commit(const parallel::CommitOptions& options) override;
  // Waits for the state.
  void drain() override;

 private:
  struct Update {
    parallel::CommitOptions options;
    std::vector<torch::Tensor> gradients;
  };
  void catch_up();

  Worker& worker_;
  const StateTransfer& transfer_;
  std::vector<torch::Tensor> parameters_;
  std::vector<Update> updates_;  // since the state that is on its way
  bool behind_ = true;
};

}  // namespace yoke::engine
