// The recurrence itself: the best plan of every stretch of layers on one component of a level.
//
// A^k(a..b, m) = min(T^k(a..b, m), min over s, r of max(A^k(a..s, m-r), cut_s, T^k(s..b, r))) as in the 2019
// paper, with two bounds that skip what cannot win: m-r components need at least compute/(m-r), r need at
// least compute/r.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "yoke/plan/pipeline/pricing.h"

namespace yoke::plan {

// How many minibatches the components behind this one hold for it, in components of the level: counts only
// under a memory limit. A stage of r that has d components from its own on keeps ceil((behind + d)/r)
// versions.
struct Behind {
  int64_t numerator = 0;
  int64_t denominator = 1;
  auto operator<=>(const Behind&) const = default;
};

class IntervalRows {
 public:
  explicit IntervalRows(const Pricing& pricing) : pricing_(pricing) {}

  using Table = std::vector<std::vector<double>>;  // [a][b - a]

  // Best times of all [a, b) on all components of `level`, that is on one component of the level above.
  // Infinity: there is no plan. Made once.
  const Table& table(int level, Behind behind);

  // The plan behind it: the stages of the level, each with its own below. Requires that there is one.
  std::vector<PlanNode> stages(int level, Behind behind, int a, int b, int components);

  // The value of the table with another number of components than the level has: for the outermost.
  double seconds_with(int level, Behind behind, int a, int b, int components);

 private:
  using Row = std::vector<std::vector<double>>;  // [components][boundary - a]
  struct Task {
    int level;
    Behind behind;
    int a;
    int end;  // the last boundary wanted
    int components;
  };

  using Centres =
      std::vector<int>;  // [components x components]: where the last search for a balanced cut ended
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
