// How a server updates parameters: optimizers on plain memory, or a custom function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "yoke/base/data_type.h"

namespace yoke::ps {

struct UpdateStep {
  double lr = 0;
  double weight = 1;    // factor for the sum of gradients
  int64_t version = 0;  // of the range after this step; 0 outside of updates
  int64_t offset = 0;   // first element, relative to the range
  int64_t count = 0;
};

// Holds the optimizer state of one range. Not thread-safe.
class Updater {
 public:
  virtual ~Updater() = default;
  // Updates `count` elements. `gradient`, `from` and `to` point to the first of them; `to` may equal `from`.
  virtual void apply(const UpdateStep& step, const void* gradient, const void* from, void* to) = 0;
  // State for checkpoints besides the parameters: arrays as long as the range.
  virtual std::vector<std::span<std::byte>> state() { return {}; }
  int64_t steps = 0;  // completed
};

// Creates the updater of a range of `count` elements from `begin`.
using MakeUpdater = std::function<std::unique_ptr<Updater>(DataType type, int64_t begin, int64_t count)>;

struct UpdaterOptions {
  std::string optimizer = "sgd";  // sgd adamw adagrad ftrl proximal lion
  double momentum = 0;            // sgd
  bool nesterov = false;          // sgd
  double weight_decay = 0;
  double beta1 = 0.9;  // adamw, lion
  double beta2 = 0.999;
  double eps = 1e-8;  // adamw, adagrad
  double beta = 1;    // ftrl
  double l1 = 0;      // ftrl, proximal
  double l2 = 0;
};

// Optimizers by name, for fp32 and fp64. Throws ConfigError for others.
MakeUpdater make_optimizer(const UpdaterOptions& options);

// parameters += weight * gradient: a plain sum.
MakeUpdater make_adder();

// A stateless custom function for fp32 and fp64, called for each step.
using UpdateFunction = std::function<void(const UpdateStep& step, DataType type, const void* gradient,
                                          const void* from, void* to)>;
MakeUpdater make_custom(UpdateFunction function);

}  // namespace yoke::ps
