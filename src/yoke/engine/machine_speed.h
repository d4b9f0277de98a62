// Peak speed of this device: the reference of `bench step` and a check of `doctor`.
#pragma once

#include <torch/types.h>

#include "yoke/compute/precision.h"

namespace yoke::engine {

// Floating-point operations per second of a large square matrix product in `precision`, best of several runs.
// Takes about a quarter of a second.
double matmul_flops(torch::Device device, Precision precision);

// Likewise for a forward 3x3 convolution.
double convolution_flops(torch::Device device, Precision precision);

// Bytes per second read and written by a copy that no cache holds.
double copy_bandwidth(torch::Device device);

}  // namespace yoke::engine
