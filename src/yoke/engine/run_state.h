// Everything a run is, as a checkpoint holds it: so that a resumed run is bit-identical to an undisturbed
// one.
#pragma once

#include <cstdint>
#include <string>

#include "yoke/checkpoint/checkpoint.h"
#include "yoke/data/loader.h"
#include "yoke/engine/worker.h"

namespace yoke::engine {

struct Progress {
  int64_t step = 0;
  int64_t samples = 0;
};

// `configuration` is the effective one as TOML, kept for people and for `ckpt export`. With `replicas` (all
// ranks of the run) it is collective: random numbers are each rank's own, and each gets the part of the
// tensors that it writes (checkpoint::Team), under the names that one device uses.
checkpoint::State collect_state(Worker& worker, const data::Loader& loader, Progress progress,
                                const std::string& configuration, comm::Communicator* replicas = nullptr);

// Puts a loaded state back: parameters, buffers, optimizer, scaler, random numbers, sample position, measured
// choices. Where the number of ranks has changed, random numbers are drawn anew and the sample position is
// moved to the batch that holds the next sample. Throws CheckpointError for a checkpoint of another model or
// optimizer.
Progress restore_state(const checkpoint::Loaded& loaded, Worker& worker, data::Loader& loader,
                       comm::Communicator* replicas = nullptr);

// Parameters and buffers of a model by name.
std::vector<optim::NamedTensor> named_tensors(const torch::nn::Module& module);

}  // namespace yoke::engine
