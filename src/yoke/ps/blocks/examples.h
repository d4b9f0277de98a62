// Examples of a sparse classification problem, and a generator of such.
#pragma once

#include <cstdint>
#include <vector>

#include "yoke/ps/sparse/key_split.h"

namespace yoke::ps::blocks {

using sparse::Key;

// Compressed rows: example i has the elements offsets[i] .. offsets[i + 1] - 1.
struct Examples {
  std::vector<size_t> offsets{0};
  std::vector<Key> keys;  // each once in an example
  std::vector<float> values;
  std::vector<int8_t> labels;  // -1 or +1

  size_t count() const { return labels.size(); }
  size_t elements() const { return keys.size(); }
};

struct GeneratorOptions {
  int64_t examples = 100'000;
  Key keys = 1'000'000;
  int64_t per_example = 30;   // features of an example, on average
  double exponent = 1.1;      // the r-th most frequent feature has a frequency of about r^-exponent
  int64_t informative = 500;  // features with a weight, among the more frequent ones
  uint64_t seed = 1;
};

// Binary features with a power law, as in advertising: few are in most examples, most are in few. The label
// follows a logistic model of the informative ones. Example i depends on the seed and on i alone: begin and
// end select a share. Throws ConfigError for numbers out of range.
Examples generate(const GeneratorOptions& options, int64_t begin, int64_t end);

}  // namespace yoke::ps::blocks
