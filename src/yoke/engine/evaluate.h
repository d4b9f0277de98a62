// Loss and accuracy on a data set.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "yoke/data/dataset.h"
#include "yoke/engine/class_counts.h"
#include "yoke/engine/worker.h"

namespace yoke::engine {

struct Evaluation {
  double loss = 0;                 // mean over the samples
  std::optional<double> accuracy;  // if the task has correct answers
  int64_t samples = 0;             // that counted: those with broken files do not
  ClassScores classes;
};

// Evaluates every sample of `dataset` once, in evaluation mode, without gradients; restores the model's mode.
// With a team each rank evaluates its part and all get the same result: that of the model as a checkpoint
// would store it, whose buffers all ranks have afterwards. Without a team this rank evaluates everything.
// Polls `stop` between batches; nullopt if it returned true on any rank.
std::optional<Evaluation> evaluate(const Worker& worker, const data::Dataset& dataset, int64_t batch_size,
                                   const std::function<bool()>& stop);

}  // namespace yoke::engine
