// Pieces of state held by ranks: collected for a checkpoint, restored, or gathered on one rank.
#pragma once

#include <vector>

#include "yoke/checkpoint/checkpoint.h"
#include "yoke/engine/worker.h"

namespace yoke::engine {

// What this rank writes to a checkpoint: pieces held by several ranks are shared among them; buffers and
// lists are those of the first rank. Collective over the strategy's team.
checkpoint::State part_to_save(Worker& worker);

// The whole state, of a rank that holds all of it; the tensors are live. Not collective.
checkpoint::State state_here(Worker& worker);

// Fills this rank's pieces from a whole state. Throws CheckpointError for another model or optimizer; `where`
// is for messages.
void restore_pieces(const checkpoint::State& whole, Worker& worker, const std::string& where);

// All parameters, then all buffers, by name: on the first rank of the team, nothing elsewhere. Collective.
std::vector<optim::NamedTensor> whole_model(Worker& worker);

// Parameters and buffers of a module by name.
std::vector<optim::NamedTensor> named_tensors(const torch::nn::Module& module);

}  // namespace yoke::engine
