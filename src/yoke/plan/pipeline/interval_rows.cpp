#include "yoke/plan/pipeline/interval_rows.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "yoke/base/error.h"
#include "yoke/plan/at.h"

namespace yoke::plan {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kSlack = 1 + 1e-12;  // the bounds are sums in another order

int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

// The stage of r components has `task.components - d` components behind it, which keep behind + (components -
// d) minibatches in flight for its r, each divided among the devices of a component.
Behind IntervalRows::below(const Task& task, int d, int r) const {
  if (!pricing_.limited()) return {};
  int64_t inside = pricing_.level(task.level - 1).count;
  int64_t numerator = (task.behind.numerator + (task.components - d) * task.behind.denominator) * inside;
  int64_t denominator = task.behind.denominator * r;
  // Versions are rounded up: at the innermost level only the integer matters.
  if (task.level == 1) return {divide_up(numerator, denominator), 1};
  int64_t common = std::max<int64_t>(1, std::gcd(numerator, denominator));
  return {numerator / common, denominator / common};
}

bool IntervalRows::fits(const Task& task, int s, int b, int d, int r) const {
  if (task.level > 0 || !pricing_.limited()) return true;
  int64_t own = task.components - d + r;
  int64_t versions =
      divide_up(task.behind.numerator + own * task.behind.denominator, task.behind.denominator * r);
  return versions <= pricing_.versions_that_fit(s, b);
}

double IntervalRows::last_stage(const Task& task, int s, int b, int d, int r) {
  if (!fits(task, s, b, d, r)) return kInfinity;
  double inner = task.level == 0 ? pricing_.cuts.seconds_of(s, b)
                                 : table(task.level - 1, below(task, d, r))[at(s)][at(b - s)];
  return pricing_.stage(task.level, inner, s, b, r, s == task.a);
}

// Tries cuts from the balanced one outwards, in both directions, as far as the bounds allow an improvement.
void IntervalRows::improve(const Task& task, const Row& row, int b, int d, Centres& centres, double& best) {
  const Cuts& cuts = pricing_.cuts;
  const double* done = cuts.seconds.data();
  const double devices = pricing_.devices_below(task.level), begin = done[task.a], end = done[b];
  const bool chain = cuts.part_of.empty();
  const bool plain = chain && task.level == 0 && !pricing_.limited() && !pricing_.stages_pay_cuts();
  for (int r = std::min(d - 1, pricing_.most_replicas(d)); r >= 1; --r) {
    if (best <= (end - begin) / (d * devices)) return;
    const double* before = row[at(d - r)].data() - task.a;
    int& centre = centres[at(d * task.components + r)];
    const double middle = begin + (end - begin) * (d - r) / d;
    while (centre < b && done[centre] < middle) ++centre;
    if (plain) {
      improve_plain(task, before, b, d, r, centre, best);
      continue;
    }
    auto try_cut = [&](int s) {
      if (before[s] >= best || pricing_.cut(task.level, s) >= best) return;
      if (!chain && (!cuts.ordered(task.a, s) || !cuts.ordered(s, b))) return;
      best = std::min(best, std::max({before[s], pricing_.cut(task.level, s), last_stage(task, s, b, d, r)}));
    };
    const double most_before = (d - r) * devices * kSlack, most_after = r * devices * kSlack;
    for (int s = centre; s < b && done[s] - begin <= best * most_before; ++s) try_cut(s);
    for (int s = centre - 1; s > task.a && end - done[s] <= best * most_after; --s) {
      if (before[s] >= best) continue;
      // In a chain the last stage, and its sync, only grow from here on.
      double sync = pricing_.sync(task.level, s, b, r, false);
      if (chain && pricing_.model().stage_seconds((end - done[s]) / devices, sync, r) > best * kSlack) break;
      try_cut(s);
    }
  }
}

// The same for devices without a memory limit, the hot path: each cost is computed once, inline.
void IntervalRows::improve_plain(const Task& task, const double* before, int b, int d, int r, int centre,
                                 double& best) const {
  const double *done = pricing_.cuts.seconds.data(), *weights = pricing_.cuts.weights.data();
  const double* cut = pricing_.cut_prices(task.level);
  const double begin = done[task.a], end = done[b], all_weights = weights[b];
  const double factor = pricing_.sync_factor(task.level, r, false);
  const double most_before = (d - r) * kSlack, most_after = r * kSlack;
  const CostModel model = pricing_.model();
  auto last_seconds = [&](int s) {
    return model.stage_seconds(end - done[s], factor * (all_weights - weights[s]), r);
  };
  for (int s = centre; s < b && done[s] - begin <= best * most_before; ++s) {
    if (before[s] >= best || cut[s] >= best) continue;
    best = std::min(best, std::max({before[s], cut[s], last_seconds(s)}));
  }
  for (int s = centre - 1; s > task.a && end - done[s] <= best * most_after; --s) {
    if (before[s] >= best) continue;
    const double last = last_seconds(s);
    if (last > best * kSlack) break;
    if (cut[s] < best) best = std::min(best, std::max({before[s], cut[s], last}));
  }
}

IntervalRows::Row IntervalRows::row(const Task& task) {
  const int m = task.components;
  Row row(at(m + 1), std::vector<double>(at(task.end - task.a + 1), kInfinity));
  Centres centres(at((m + 1) * (m + 1)), task.a + 1);
  for (int b = task.a + 1; b <= task.end; ++b) {
    if (!pricing_.cuts.ordered(task.a, b)) continue;
    for (int d = 1; d <= m; ++d) {
      double best = d <= pricing_.most_replicas(d) ? last_stage(task, task.a, b, d, d) : kInfinity;
      improve(task, row, b, d, centres, best);
      row[at(d)][at(b - task.a)] = best;
    }
  }
  return row;
}

const IntervalRows::Table& IntervalRows::table(int level, Behind behind) {
  std::unique_ptr<Table>& entry = tables_[{level, behind}];
  if (entry) return *entry;
  auto made = std::make_unique<Table>();
  const int end = pricing_.cuts.count(), components = pricing_.level(level).count;
  for (int a = 0; a < end; ++a) made->push_back(std::move(row({level, behind, a, end, components}).back()));
  entry = std::move(made);  // entries of a map stay valid while others are added
  return *entry;
}

double IntervalRows::seconds_with(int level, Behind behind, int a, int b, int components) {
  return row({level, behind, a, b, components}).back().back();
}

std::vector<PlanNode> IntervalRows::stages(int level, Behind behind, int a, int b, int components) {
  Task task{level, behind, a, b, components};
  Row values = row(task);
  auto value = [&](int boundary, int d) { return values[at(d)][at(boundary - a)]; };
  YOKE_CHECK(std::isfinite(value(b, components)), "no plan for layers {} to {}", a, b);
  std::vector<PlanNode> reversed;
  auto add = [&](int from, int to, int d, int r) {
    PlanNode node{from, to, r, {}};
    if (level > 0)
      node.inner = stages(level - 1, below(task, d, r), from, to, pricing_.level(level - 1).count);
    reversed.push_back(std::move(node));
  };
  // The stages before the last cut may be slower than their optimum: any that attains the value is valid.
  for (int end = b, d = components; end > a;) {
    double wanted = value(b, components);
    if (d <= pricing_.most_replicas(d) && last_stage(task, a, end, d, d) <= wanted) {
      add(a, end, d, d);
      break;
    }
    int cut = 0, replicas = 0;
    for (int s = end - 1; s > a && replicas == 0; --s) {
      if (!pricing_.cuts.ordered(a, s) || !pricing_.cuts.ordered(s, end) || pricing_.cut(level, s) > wanted)
        continue;
      for (int r = 1; r < d && r <= pricing_.most_replicas(d) && replicas == 0; ++r) {
        if (value(s, d - r) <= wanted && last_stage(task, s, end, d, r) <= wanted) {
          cut = s;
          replicas = r;
        }
      }
    }
    YOKE_CHECK(replicas > 0, "the plan of layers {} to {} cannot be traced back", a, end);
    add(cut, end, d, replicas);
    end = cut;
    d -= replicas;
  }
  return {reversed.rbegin(), reversed.rend()};
}

}  // namespace yoke::plan
