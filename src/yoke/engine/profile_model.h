// Times and sizes of each block of a model on this device: the profile that plans are made from.
#pragma once

#include <cstdint>

#include "yoke/engine/worker.h"
#include "yoke/plan/pipeline/profile.h"

namespace yoke::engine {

struct ProfileOptions {
  int64_t warm_up = 2;
  int64_t repeats = 9;  // medians of so many passes
};

// One minibatch of `batch` samples forward and backward, block by block; the loss counts to the last one. The
// model's gradients and statistics are as before afterwards. Requires a worker that has the whole model.
plan::Profile profile_model(const Worker& worker, int64_t batch, const ProfileOptions& options = {});

}  // namespace yoke::engine
