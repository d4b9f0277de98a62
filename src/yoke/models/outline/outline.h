// What a model will be, computed from its options alone: no tensor is made and LibTorch is not needed. So a
// size that no machine can hold, and a pipeline with more stages than blocks, are told before anything
// starts.
#pragma once

#include <cstdint>
#include <string>

#include "yoke/models/options.h"

namespace yoke::models {

struct Outline {
  int64_t blocks = 0;
  double parameters = 0;    // elements
  double sample_bytes = 0;  // of one sample's inputs; 0: depends on the sample
};

// As lay_out() would build it. Throws ConfigError for a name that is no model's.
Outline outline_of(const ModelOptions& options);

// Throws ConfigError, naming the largest key that is set, where the weights (fp32) of one of `stages` equal
// parts exceed `most_bytes`, or blocks are more than can be built. `whose` ends the sentence: "this machine
// has".
void check_size(const ModelOptions& options, double most_bytes, const std::string& whose, int64_t stages = 1);

// Bytes that one process can address: more is refused on any machine.
inline constexpr double kAddressSpace = 140'737'488'355'328;  // 2^47

}  // namespace yoke::models
