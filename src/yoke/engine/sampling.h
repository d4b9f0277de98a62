// Chooses the next token from a model's logits.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "yoke/base/random.h"

namespace yoke::engine {

struct SamplingOptions {
  double temperature = 0.8;  // 0: the most probable token, the first of equal ones
  int64_t top_k = 0;         // of the K most probable ones; 0: all
  double top_p = 1;          // of those, the fewest that reach this probability together
};

// Draws by temperature, then top_k, then top_p, as transformers does. The same on every machine for the same
// logits and seed.
class Sampler {
 public:
  Sampler(const SamplingOptions& options, uint64_t seed) : options_(options), random_(seed) {}

  // The index chosen. Requires at least one logit. Throws ConfigError if one is not finite.
  int64_t pick(std::span<const float> logits);

 private:
  int64_t draw(std::span<const float> logits, float highest);
  void keep_probable();

  SamplingOptions options_;
  Random random_;
  std::vector<std::pair<double, int64_t>> candidates_;  // probability (not normalised), index
};

}  // namespace yoke::engine
