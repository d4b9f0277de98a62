// Size of a model, computed from its options alone, without tensors and LibTorch: models that fit no machine,
// and pipelines with more stages than blocks, are refused before anything starts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "yoke/models/options.h"

namespace yoke::models {

struct Outline {
  int64_t blocks = 0;
  double parameters = 0;    // elements
  double sample_bytes = 0;  // inputs of one sample; 0: depends on the sample
};

// Matches what lay_out() would build. Throws ConfigError for an unknown model.
Outline outline_of(const ModelOptions& options);

// Registers a model of the program. Call it before a configuration is read. Throws ConfigError for a name
// that is taken.
using Outliner = std::function<Outline(const ModelOptions&)>;
void add_model_name(const std::string& name, Outliner outline);

// Whether it is a built-in model.
bool is_built_in(const std::string& model);

// Throws ConfigError, naming the largest key that is set, where the weights (fp32) of one of `stages` equal
// parts exceed `most_bytes`, or blocks are more than can be built. `whose` ends the sentence: "this machine
// has". A model of the program's own is not checked: its size is known when it is built.
void check_size(const ModelOptions& options, double most_bytes, const std::string& whose, int64_t stages = 1);

// Address space of one process: larger models are refused on any machine.
inline constexpr double kAddressSpace = 140'737'488'355'328;  // 2^47

}  // namespace yoke::models
