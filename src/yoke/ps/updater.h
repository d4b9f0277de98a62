// How a server moves parameters: optimizers on plain memory, or a function of the user.
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
  double weight = 1;    // what the sum of gradients is multiplied with
  int64_t version = 0;  // of the range after this step; 0 outside of updates
  int64_t offset = 0;   // elements before the first one, within the range
  int64_t count = 0;
};

// Keeps the state of one range. One thread.
class Updater {
 public:
  virtual ~Updater() = default;
  // Moves `count` elements. `gradient`, `from` and `to` point to the first of them; `to` may be `from`.
  virtual void apply(const UpdateStep& step, const void* gradient, const void* from, void* to) = 0;
  // What a checkpoint must hold besides the parameters: arrays as long as the range.
  virtual std::vector<std::span<std::byte>> state() { return {}; }
  int64_t steps = 0;  // done so far
};

// One for each range, of `count` elements from `begin` on.
using MakeUpdater = std::function<std::unique_ptr<Updater>(DataType type, int64_t begin, int64_t count)>;

struct UpdaterOptions {
  std::string optimizer = "sgd";  // sgd adamw adagrad
  double momentum = 0;            // sgd
  bool nesterov = false;          // sgd
  double weight_decay = 0;
  double beta1 = 0.9;  // adamw
  double beta2 = 0.999;
  double eps = 1e-8;  // adamw, adagrad
};

// Optimizers by name; fp32 and fp64. Throws ConfigError for others.
MakeUpdater make_optimizer(const UpdaterOptions& options);

// Parameters become parameters + weight x gradient: a plain sum, for values that are counted.
MakeUpdater make_adder();

// A function of the user for fp32 and fp64 without state: called with each step.
using UpdateFunction = std::function<void(const UpdateStep& step, DataType type, const void* gradient,
                                          const void* from, void* to)>;
MakeUpdater make_custom(UpdateFunction function);

}  // namespace yoke::ps
