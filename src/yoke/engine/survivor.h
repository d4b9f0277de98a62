// The state of a run that outlives an epoch of an elastic job (docs/design/elastic.md).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "yoke/comm/communicator.h"
#include "yoke/engine/engine.h"
#include "yoke/engine/follower.h"
#include "yoke/engine/run_state.h"
#include "yoke/metrics/sink.h"

namespace yoke::engine {

// Observes an engine and can tell, at any time and also after run() has thrown, the state after the last
// finished step. Parameters and optimizer state change in the update only, which is the last thing that a
// step does; buffers change in its forward pass and are copied after each step.
class StepKeeper : public metrics::Sink {
 public:
  // At a step boundary, once the worker's state is restored. All arguments must outlive it.
  StepKeeper(Worker& worker, const data::Loader& loader, const Engine& engine);

  void tick(int64_t step, double samples_per_s) override;
  void write(const metrics::Record&) override {}

  // Its tensors are the worker's, and stay valid without it. Not collective.
  checkpoint::State state(const std::string& configuration);

 private:
  void copy_buffers();
  Worker& worker_;
  const data::Loader& loader_;
  const Engine& engine_;
  data::Position position_;
  std::vector<optim::NamedTensor> buffers_;
};

// checkpoint::State::rest of a run after the last finished step, to resume from memory. Without its
// configuration.
nlohmann::json rest_of(const Finished& at, const data::Position& position, const Worker& worker);

// Names, shapes and types of tensors, and host memory for them.
nlohmann::json outline(const std::vector<optim::NamedTensor>& tensors);
std::vector<optim::NamedTensor> laid_out(const nlohmann::json& outline);

// What all ranks of a new epoch found out about their states.
struct Agreement {
  int64_t step = 0;
  int source = -1;     // rank whose state all have now; -1: nobody has one
  bool moved = false;  // some rank did not have it
  // Ranks that get it while all train on (engine/follower.h): their state consists of zeros until then.
  std::vector<int> followers{};
  std::unique_ptr<StateTransfer> transfer{};  // on the source and on followers
};

// Ranks compare their states, and all continue with the newest: the lowest rank that has it sends it to those
// that do not, from memory. Buffers are those of that rank on all. `own`: this rank's; empty: it
// has just joined, or none exists yet. `may_follow`: ranks that have none get theirs while all train on,
// unless one that has another is behind, too. Collective. Throws CommError.
Agreement agree_on_state(std::optional<checkpoint::State>& own, comm::Communicator& comm,
                         bool may_follow = false);

}  // namespace yoke::engine
