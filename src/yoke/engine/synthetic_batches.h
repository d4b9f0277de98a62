// Batches prepared before the measurement starts.
#pragma once

#include <vector>

#include "yoke/data/batch.h"
#include "yoke/engine/worker.h"

namespace yoke::engine {

constexpr double kBenchLearningRate = 1e-3;

// The first steps select convolution paths, record graphs and fault memory in.
constexpr int64_t kBenchWarmUpSteps = 5;

// A few different batches for the worker's model, on its device. `seed`: different samples per rank.
std::vector<data::Batch> synthetic_batches(const Worker& worker, int64_t batch_size, uint64_t seed = 1);

}  // namespace yoke::engine
