// Batches prepared before the measurement starts.
#pragma once

#include <vector>

#include "yoke/data/batch.h"
#include "yoke/engine/worker.h"

namespace yoke::engine {

constexpr double kBenchLearningRate = 1e-3;

// The first steps select convolution paths, record graphs and fault memory in.
constexpr int64_t kBenchWarmUpSteps = 5;

// Different batches for the worker's model, on its device. `seed`: different samples per rank.
std::vector<data::Batch> synthetic_batches(const Worker& worker, int64_t batch_size, uint64_t seed = 1,
                                           int64_t count = 2);

}  // namespace yoke::engine
