// A finite set of samples addressed by index. Immutable after construction; gather() may be called from
// several threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "yoke/base/sample_spec.h"
#include "yoke/data/batch.h"
#include "yoke/data/options.h"

namespace yoke::data {

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  virtual SampleSpec spec() const = 0;
  // The samples at `indices` (each in 0..size()-1), in that order.
  virtual Batch gather(std::span<const int64_t> indices) const = 0;
};

enum class Split { kTrain, kTest };

// Opens the data set that `options` names, for a model that takes `wanted` (synthetic data takes its shape
// from there, token files their sample length). Throws ConfigError: files missing (names every place looked
// at, and how to get them), truncated or foreign (names file and offset), or samples of another kind or size
// than the model takes (names both). `seed` makes synthetic data.
std::unique_ptr<Dataset> open(const DataOptions& options, Split split, const SampleSpec& wanted,
                              uint64_t seed);

}  // namespace yoke::data
