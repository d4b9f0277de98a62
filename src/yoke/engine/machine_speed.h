// What this device reaches at best: the yardstick of `bench step` and a check of `doctor`.
#pragma once

#include <torch/types.h>

#include "yoke/compute/precision.h"

namespace yoke::engine {

// Floating-point operations per second of a large square matrix product in `precision`, best of several.
// Takes about a quarter of a second.
double matmul_flops(torch::Device device, Precision precision);

// The same for a 3x3 convolution, forward.
double convolution_flops(torch::Device device, Precision precision);

}  // namespace yoke::engine
