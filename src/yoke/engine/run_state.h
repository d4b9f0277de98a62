// The complete state of a run as a checkpoint holds it, so that a resumed run is bit-identical to an
// uninterrupted one.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>

#include "yoke/checkpoint/checkpoint.h"
#include "yoke/data/loader.h"
#include "yoke/engine/state_pieces.h"
#include "yoke/engine/worker.h"

namespace yoke::engine {

struct Progress {
  int64_t step = 0;
  int64_t samples = 0;
  data::Position position{};                               // of the next batch
  double loss = std::numeric_limits<double>::quiet_NaN();  // Outcome::final_loss so far; NaN: none
};

// `configuration` is the effective one as TOML, stored for people and for `ckpt export`. Collective over the
// strategy's team: random states are per rank, and each rank gets the part of the tensors that it writes
// (checkpoint::Team), under the names used on one device. Throws ConfigError, on all ranks, if a tensor has
// non-finite values.
checkpoint::State collect_state(Worker& worker, const Progress& progress, const std::string& configuration);

// Restores parameters, buffers, optimizer, scaler, random states, data position, measured choices. If the
// number of ranks has changed, new random states are derived; the position counts samples and is valid for
// any batch size and number of ranks (older checkpoints count batches, which is supported). Throws
// CheckpointError for a checkpoint of another model or optimizer.
// `fill`, if there is one, restores parameters, buffers and optimizer in place of loaded.state.
Progress restore_state(const checkpoint::Loaded& loaded, Worker& worker, data::Loader& loader,
                       const std::function<void()>& fill = {});

// The data position stored in a checkpoint. Throws CheckpointError.
data::Position saved_position(const nlohmann::json& rest, const std::string& where);

}  // namespace yoke::engine
