// How a server updates rows of a sparse table with what was pushed for them.
//
//   add       w += g
//   sgd       w -= lr g
//   adagrad   n += g^2, w -= lr g / (sqrt(n) + eps), as torch.optim
//   ftrl      FTRL-proximal (kernels/optimizer_steps.h)
//   proximal  v = w - lr g, w = sign(v) max(0, |v| - lr l1) / (1 + lr l2)
//
// g is the weighted sum of all gradients of an update. Rows that it does not name keep values and state, but
// in updates of a run `proximal` takes its penalties off all rows (penalty.h): each weight has them in each
// step, as on one device.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "yoke/base/data_type.h"
#include "yoke/ps/sparse/key_split.h"
#include "yoke/ps/sparse/penalty.h"

namespace yoke::ps::sparse {

inline constexpr int kMostStateArrays = 2;

struct RuleStep {
  double lr = 1;
  double weight = 1;  // factor for the gradient
};

// Rows that lie one after the other: all arrays have keys.size() * width values of `type`.
struct RowBlock {
  DataType type = DataType::kFloat32;
  int64_t width = 1;
  std::span<const Key> keys;
  const void* gradient = nullptr;  // Rule::pushed() values per key
  void* values = nullptr;
  std::array<void*, kMostStateArrays> state{};  // those of the rule, zeros for a new key
  int64_t count() const { return static_cast<int64_t>(keys.size()) * width; }
};

// Stateless itself; any thread.
class Rule {
 public:
  virtual ~Rule() = default;
  virtual int state_arrays() const = 0;
  // Values per key of what is pushed, given those of a row.
  virtual int64_t pushed(int64_t width) const { return width; }
  virtual void apply(const RuleStep& step, const RowBlock& rows) const = 0;
  // What an update of a run does to rows that it does not name; apply() does it to those that it names.
  virtual Penalty penalty() const { return {}; }
};

struct RuleOptions {
  std::string name = "add";
  double lr = 1;       // of pushes outside of updates
  double eps = 1e-10;  // adagrad
  double beta = 1;     // ftrl
  double l1 = 0;       // ftrl, proximal
  double l2 = 0;
};

// Throws ConfigError for another name or a number out of range.
std::shared_ptr<const Rule> make_rule(const RuleOptions& options);

// A function of the program's own, called with what was aggregated (a proximal step, a regulariser, a count).
using RowFunction = std::function<void(const RuleStep& step, const RowBlock& rows)>;
// `pushed`: values per key of a push; 0: as many as a row has.
std::shared_ptr<const Rule> make_function(RowFunction function, int state_arrays = 0, int64_t pushed = 0);

}  // namespace yoke::ps::sparse
