// The state of torch::optim optimizers as named tensors, and back: SGD, Adam, AdamW, Adagrad, RMSprop.
//
// Tensors are named "exp_avg/GROUP.PARAMETER", both counted from 0. State that an optimizer creates in its
// first step is created here on restore.
#pragma once

#include <torch/optim/optimizer.h>

#include <string>
#include <vector>

#include "yoke/checkpoint/tensors.h"

namespace yoke::checkpoint {

// The tensors are the optimizer's own; step counts are int64 of one element. Throws ConfigError for other
// optimizers.
std::vector<NamedTensor> optimizer_state(torch::optim::Optimizer& optimizer);

// Replaces the optimizer's whole state. Throws CheckpointError naming the first tensor that does not fit; the
// optimizer is then unchanged.
void restore_optimizer(torch::optim::Optimizer& optimizer, const std::vector<NamedTensor>& saved,
                       const std::string& what);

}  // namespace yoke::checkpoint
