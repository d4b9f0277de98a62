// Loss and accuracy on a data set.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "yoke/comm/communicator.h"
#include "yoke/data/dataset.h"
#include "yoke/engine/worker.h"

namespace yoke::engine {

struct Evaluation {
  double loss = 0;                 // mean over the samples
  std::optional<double> accuracy;  // where the model has right answers
  int64_t samples = 0;
};

// Runs every sample of `dataset` once, in evaluation mode, without gradients; puts the model's mode back.
// With a communicator each rank runs its part (a pipeline: each copy of it), and all get the same result:
// that of the model as a checkpoint would hold it, whose buffers all ranks have afterwards. Asks `stop`
// between batches: nullopt when it said so, on any rank.
std::optional<Evaluation> evaluate(const Worker& worker, const data::Dataset& dataset, int64_t batch_size,
                                   const std::function<bool()>& stop, comm::Communicator* comm = nullptr);

}  // namespace yoke::engine
