// A finite set of samples addressed by index. Immutable after construction; gather() is thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

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
  // The same as training sees them in `epoch`: data sets that augment draw anew each time, from seed, epoch
  // and index alone.
  virtual Batch draw(std::span<const int64_t> indices, int64_t /*epoch*/) const { return gather(indices); }
  // Names of the classes, or empty: they are numbered.
  virtual std::vector<std::string> class_names() const { return {}; }
};

// The class of a test sample whose file is broken and skipped: it does not count.
inline constexpr int64_t kNotCounted = -100;

enum class Split { kTrain, kTest };

// Opens the data set of `options`, for a model that takes `wanted` (synthetic data takes its shape from
// there, token files their sample length). Throws ConfigError: files missing (with all places searched, and
// how to get them), truncated or of another format (with file and offset), or samples of another kind or size
// than the model takes. `seed`: for synthetic data.
std::unique_ptr<Dataset> open(const DataOptions& options, Split split, const SampleSpec& wanted,
                              uint64_t seed);

// Registers a data set of the program: data.name = `name` opens it with `open_data`, which behaves like
// open(). Call it before a configuration is read. Throws ConfigError for a name that is taken.
using OpenData = std::function<std::unique_ptr<Dataset>(const DataOptions& options, Split split,
                                                        const SampleSpec& wanted, uint64_t seed)>;
void register_data(const std::string& name, OpenData open_data);

}  // namespace yoke::data
