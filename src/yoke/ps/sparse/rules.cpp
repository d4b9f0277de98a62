#include "yoke/ps/sparse/rules.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/kernels/optimizer_steps.h"

namespace yoke::ps::sparse {
namespace {

// Calls `step.template operator()<T>()` with the type of the rows.
template <class Step>
void with_type(DataType type, Step&& step) {
  if (type == DataType::kFloat32)
    step.template operator()<float>();
  else
    step.template operator()<double>();
}

class FunctionRule final : public Rule {
 public:
  FunctionRule(RowFunction function, int arrays, int64_t pushed, Penalty penalty = {})
      : function_(std::move(function)), arrays_(arrays), pushed_(pushed), penalty_(penalty) {}
  int state_arrays() const override { return arrays_; }
  int64_t pushed(int64_t width) const override { return pushed_ > 0 ? pushed_ : width; }
  void apply(const RuleStep& step, const RowBlock& rows) const override { function_(step, rows); }
  Penalty penalty() const override { return penalty_; }

 private:
  RowFunction function_;
  int arrays_;
  int64_t pushed_;
  Penalty penalty_;
};

void add(const RuleStep& step, const RowBlock& rows) {
  with_type(rows.type, [&]<class T>() {
    kernels::add_scaled(static_cast<T*>(rows.values), static_cast<const T*>(rows.gradient), step.weight,
                        rows.count());
  });
}

void sgd(const RuleStep& step, const RowBlock& rows) {
  with_type(rows.type, [&]<class T>() {
    auto* values = static_cast<T*>(rows.values);
    kernels::sgd<T>({.lr = step.lr}, step.weight, static_cast<const T*>(rows.gradient), values, values,
                    nullptr, rows.count());
  });
}

void adagrad(double eps, const RuleStep& step, const RowBlock& rows) {
  with_type(rows.type, [&]<class T>() {
    auto* values = static_cast<T*>(rows.values);
    kernels::adagrad<T>({.lr = step.lr, .eps = eps}, step.weight, static_cast<const T*>(rows.gradient),
                        values, values, static_cast<T*>(rows.state[0]), rows.count());
  });
}

void ftrl(const RuleOptions& o, const RuleStep& step, const RowBlock& rows) {
  with_type(rows.type, [&]<class T>() {
    auto* values = static_cast<T*>(rows.values);
    kernels::ftrl<T>({step.lr, o.beta, o.l1, o.l2}, step.weight, static_cast<const T*>(rows.gradient), values,
                     values, static_cast<T*>(rows.state[0]), static_cast<T*>(rows.state[1]), rows.count());
  });
}

void proximal(const RuleOptions& o, const RuleStep& step, const RowBlock& rows) {
  with_type(rows.type, [&]<class T>() {
    auto* values = static_cast<T*>(rows.values);
    kernels::proximal<T>({step.lr, o.l1, o.l2}, step.weight, static_cast<const T*>(rows.gradient), values,
                         values, rows.count());
  });
}

}  // namespace

std::shared_ptr<const Rule> make_function(RowFunction function, int state_arrays, int64_t pushed) {
  if (!function || state_arrays < 0 || state_arrays > kMostStateArrays || pushed < 0)
    throw ConfigError("a rule of a sparse table needs a function and 0 to {} state arrays, not {}.",
                      kMostStateArrays, state_arrays);
  return std::make_shared<FunctionRule>(std::move(function), state_arrays, pushed);
}

std::shared_ptr<const Rule> make_rule(const RuleOptions& o) {
  const bool finite = std::isfinite(o.lr) && std::isfinite(o.eps) && std::isfinite(o.beta) &&
                      std::isfinite(o.l1) && std::isfinite(o.l2);
  if (!finite || o.lr <= 0 || std::min({o.eps, o.beta, o.l1, o.l2}) < 0)
    throw ConfigError(
        "rule \"{}\" with lr {}, eps {}, beta {}, l1 {}, l2 {}: lr must be above 0, the others not below.",
        o.name, o.lr, o.eps, o.beta, o.l1, o.l2);
  if (o.name == "add") return make_function(add);
  if (o.name == "sgd") return make_function(sgd);
  if (o.name == "adagrad")
    return make_function(
        [eps = o.eps](const RuleStep& step, const RowBlock& rows) { adagrad(eps, step, rows); }, 1);
  if (o.name == "ftrl")
    return make_function([o](const RuleStep& step, const RowBlock& rows) { ftrl(o, step, rows); }, 2);
  if (o.name == "proximal")
    return std::make_shared<FunctionRule>(
        [o](const RuleStep& step, const RowBlock& rows) { proximal(o, step, rows); }, 0, 0,
        Penalty{o.l1, o.l2});
  throw ConfigError("rule \"{}\" of a sparse table: use add, sgd, adagrad, ftrl or proximal.", o.name);
}

}  // namespace yoke::ps::sparse
