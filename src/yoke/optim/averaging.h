// An exponential moving average of the weights, kept beside any optimizer (train.ema):
//   average <- d average + (1 - d) w after update n = 0, 1, 2, …, with d = min(ema, (1 + n) / (10 + n)).
//
// The ramp lets short runs average too. The average is part of the optimizer's state ("ema/<name>", and
// "ema_steps" with the number of updates), so that it is cut, saved and restored as that is. It costs the
// memory of the parameters once more, in fp32 where they have fp32 masters.
#pragma once

#include "yoke/optim/optimizer.h"

namespace yoke::optim {

// Exchanges the weights of an optimizer made with `ema` for their average; again: back. Between steps.
// Returns false, having done nothing, without an average.
bool exchange_average(Optimizer& optimizer);

}  // namespace yoke::optim
