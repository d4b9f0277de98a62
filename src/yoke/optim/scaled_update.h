// Updates from scaled gradients, decided on the device: for recorded steps, which the host does not wait for.
#pragma once

#include <torch/types.h>

#include <string>

#include "yoke/optim/optimizer.h"

namespace yoke::optim {

// fp32 scalars on the parameters' device, read when an update runs.
struct ScaledUpdate {
  torch::Tensor divisor;  // of the gradients
  torch::Tensor skip;     // 1: gradients are not finite, parameters and state stay as they are; 0: update
};

// From now on update() follows `scaled`. Dense gradients only; fp32 gradients may be divided in place.
// Returns false, having done nothing, if this optimizer cannot: SGD and AdamW can.
bool follow_scaled_update(Optimizer& optimizer, const ScaledUpdate& scaled);

// Whether the optimizer of this name can.
bool can_follow_scaled_update(const std::string& optimizer);

}  // namespace yoke::optim
