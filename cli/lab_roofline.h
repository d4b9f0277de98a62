// The roofline of training steps (Williams et al. 2009): a step takes at least its operations divided by the
// peak of the device, and at least its bytes divided by the bandwidth of the memory.
#pragma once

#include <algorithm>

namespace yoke::cli {

struct StepCost {
  double flops = 0;             // of a sample
  double activation_bytes = 0;  // of a sample, kept for backward
  double parameter_bytes = 0;
  double optimizer_bytes = 0;  // state

  // Least traffic with the memory. Activations: written, read by the next layer, read in backward; their
  // gradients written and read. Weights: read in forward and backward, gradients written; the update reads
  // weights, gradients and state, and writes weights and state. `width`: bytes of an activation relative to
  // fp32.
  double bytes(double batch, double width = 1) const {
    return 5 * activation_bytes * width * batch + 6 * parameter_bytes + 2 * optimizer_bytes;
  }
  // Operations per byte.
  double intensity(double batch, double width = 1) const { return flops * batch / bytes(batch, width); }
};

struct Roofline {
  double peak = 0;       // operations per second
  double bandwidth = 0;  // bytes per second

  double at(double intensity) const { return std::min(peak, bandwidth * intensity); }
  double samples_per_s(const StepCost& cost, double batch, double width = 1) const {
    return at(cost.intensity(batch, width)) / cost.flops;
  }
};

// A step of b samples takes about fixed + each * b seconds.
struct BatchLine {
  double fixed = 0, each = 0;
  double samples_per_s(double batch) const { return batch / (fixed + each * batch); }
  // The batch with this share of the speed of an endless one; 0: any.
  double knee(double share = 0.9) const { return each > 0 ? share / (1 - share) * fixed / each : 0; }
};

}  // namespace yoke::cli
