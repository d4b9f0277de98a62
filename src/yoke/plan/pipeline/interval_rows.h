// The dynamic programming recurrence: the best plan of every interval of layers on one component of a level.
//
// A^k(a..b, m) = min(T^k(a..b, m), min over s, r of max(A^k(a..s, m-r), cut_s, T^k(s..b, r))) as in the 2019
// paper, with two bounds that prune: m-r components need at least compute/(m-r), r components at least
// compute/r.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "yoke/plan/pipeline/pricing.h"

namespace yoke::plan {

// Number of minibatches that later components keep in flight for this one, in components of the level; only
// used with a memory limit. A stage of r components with d components from itself on keeps ceil((behind +
// d)/r) versions.
struct Behind {
  int64_t numerator = 0;
  int64_t denominator = 1;
  auto operator<=>(const Behind&) const = default;
};

class IntervalRows {
 public:
  explicit IntervalRows(const Pricing& pricing) : pricing_(pricing) {}

  using Table = std::vector<std::vector<double>>;  // [a][b - a]

  // Best times of all [a, b) on all components of `level`, i.e. on one component of the level above.
  // Infinity: no plan. Computed once.
  const Table& table(int level, Behind behind);

  // The stages of that plan, each with its inner plan. Requires that there is one.
  std::vector<PlanNode> stages(int level, Behind behind, int a, int b, int components);

  // Like the table, with another number of components than the level has: for the outermost level.
  double seconds_with(int level, Behind behind, int a, int b, int components);

 private:
  using Row = std::vector<std::vector<double>>;  // [components][boundary - a]
  struct Task {
    int level;
    Behind behind;
    int a;
    int end;  // the last boundary needed
    int components;
  };

  // [components x components]: where the last search for a balanced cut ended.
  using Centres = std::vector<int>;
  Row row(const Task& task);
  void improve(const Task& task, const Row& row, int b, int d, Centres& centres, double& best);
  void improve_plain(const Task& task, const double* before, int b, int d, int r, int centre,
                     double& best) const;
  double last_stage(const Task& task, int s, int b, int d, int r);
  Behind below(const Task& task, int d, int r) const;
  bool fits(const Task& task, int s, int b, int d, int r) const;

  const Pricing& pricing_;
  std::map<std::pair<int, Behind>, std::unique_ptr<Table>> tables_;
};

}  // namespace yoke::plan
