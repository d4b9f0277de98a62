// A stage of a pipeline as a placement: the consecutive blocks of the model that one rank holds.
#pragma once

#include <vector>

#include "yoke/comm/communicator.h"
#include "yoke/parallel/placement/stage/layout.h"
#include "yoke/parallel/placement/stage/ownership.h"
#include "yoke/parallel/placement/stage/weight_versions.h"

namespace yoke::parallel {

// A rank's part of a model: which tensors it holds, and its weights in versions. Made before the optimizer,
// which gets versions.newest().
struct PipelineStage {
  // Gives back what other stages hold. Throws ConfigError where the world has another number of ranks.
  PipelineStage(const models::Model& model, PipelineLayout layout, comm::Communicator& comm);
  // The same with tensors given to stages by other rules; the layout's blocks are not used.
  PipelineStage(std::vector<OwnedTensor> tensors, PipelineLayout layout, comm::Communicator& comm);

  comm::Communicator& world;
  PipelineLayout layout;
  PipelinePlace place;
  std::vector<OwnedTensor> tensors;  // of the whole model
  WeightVersions versions;
};

}  // namespace yoke::parallel
