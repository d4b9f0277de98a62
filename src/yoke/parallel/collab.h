// A model on one device as a peer of a collaborative run (docs/design/collaborative.md).
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "yoke/collab/peer.h"
#include "yoke/models/model.h"
#include "yoke/parallel/strategy.h"

namespace yoke::parallel {

struct CollabReplicaOptions {
  int64_t batch = 1;  // samples computed at once
  std::function<double(int64_t step)> learning_rate;
  // Inputs and target of samples first..first+count-1 of the run's order.
  using Samples = std::pair<std::vector<torch::Tensor>, torch::Tensor>;
  std::function<Samples(int64_t first, int64_t count)> samples;
};

// `strategy` (for one device) and `model` must outlive it.
std::unique_ptr<collab::Trainer> make_collab_trainer(Strategy& strategy, const models::Model& model,
                                                     CollabReplicaOptions options);

}  // namespace yoke::parallel
