// Everything a run is, as a checkpoint holds it: so that a resumed run is bit-identical to an undisturbed
// one.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "yoke/checkpoint/checkpoint.h"
#include "yoke/data/loader.h"
#include "yoke/engine/worker.h"

namespace yoke::engine {

struct Progress {
  int64_t step = 0;
  int64_t samples = 0;
  data::Position position{};                               // of the next batch
  double loss = std::numeric_limits<double>::quiet_NaN();  // Outcome::final_loss so far; NaN: none
};

// `configuration` is the effective one as TOML, kept for people and for `ckpt export`. With `replicas` (all
// ranks of the run) it is collective: random numbers are each rank's own, and each gets the part of the
// tensors that it writes (checkpoint::Team), under the names that one device uses. Throws ConfigError, on all
// ranks, where a tensor holds something that is not finite: such a state is not worth saving.
checkpoint::State collect_state(Worker& worker, const Progress& progress, const std::string& configuration,
                                comm::Communicator* replicas = nullptr);

// Puts a loaded state back: parameters, buffers, optimizer, scaler, random numbers, sample position, measured
// choices. Where the number of ranks has changed, random numbers are drawn anew; the position counts samples
// and holds for any batch size and number of ranks (in older checkpoints batches, read as well). Throws
// CheckpointError for a checkpoint of another model or optimizer.
Progress restore_state(const checkpoint::Loaded& loaded, Worker& worker, data::Loader& loader,
                       comm::Communicator* replicas = nullptr);

// Where a run stood, from what its checkpoint keeps besides tensors. Throws CheckpointError.
data::Position saved_position(const nlohmann::json& rest, const std::string& where);

// Parameters and buffers of a model by name.
std::vector<optim::NamedTensor> named_tensors(const torch::nn::Module& module);

}  // namespace yoke::engine
