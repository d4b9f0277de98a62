// Measures time and size of each block of a model on this device: the profile that plans are made from.
#pragma once

#include <cstdint>

#include "yoke/engine/worker.h"
#include "yoke/plan/pipeline/profile.h"

namespace yoke::engine {

struct ProfileOptions {
  int64_t warm_up = 2;
  int64_t repeats = 9;  // number of passes, of which the median is taken
};

// One minibatch of `batch` samples forward and backward, block by block; the loss belongs to the last block.
// Restores the model's gradients and statistics. Requires a worker with the whole model.
plan::Profile profile_model(const Worker& worker, int64_t batch, const ProfileOptions& options = {});

// The same node by node, with the edges between them: what a partition is made from. Of a model that is a
// chain: its blocks.
plan::Profile profile_graph(const Worker& worker, int64_t batch, const ProfileOptions& options = {});

}  // namespace yoke::engine
