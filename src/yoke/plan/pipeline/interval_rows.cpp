#include "yoke/plan/pipeline/interval_rows.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "yoke/base/error.h"

namespace yoke::plan {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kSlack = 1 + 1e-12;  // the bounds are sums in another order

size_t slot(int a, int b, int d, int components) {
  return static_cast<size_t>(b - a) * static_cast<size_t>(components + 1) + static_cast<size_t>(d);
}

int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

// The stage has `task.components - d` components behind it and itself r: those hold behind + (components - d)
// minibatches for its r, each of which splits among the devices of a component.
Behind IntervalRows::below(const Task& task, int d, int r) const {
  if (!pricing_.limited()) return {};
  int64_t inside = pricing_.level(task.level - 1).count;
  int64_t numerator = (task.behind.numerator + (task.components - d) * task.behind.denominator) * inside;
  int64_t denominator = task.behind.denominator * r;
  // Versions are rounded up: at the innermost level nothing but the whole number matters.
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
  double inner =
      task.level == 0 ? pricing_.cuts.seconds_of(s, b) : seconds(task.level - 1, below(task, d, r), s, b);
  return pricing_.stage(task.level, inner, s, b, r, s == task.a);
}

void IntervalRows::improve(const Task& task, const Row& row, int b, int d, double& best) {
  const std::vector<double>& done = pricing_.cuts.seconds;
  const double devices = pricing_.devices_below(task.level);
  const double begin = done[static_cast<size_t>(task.a)], end = done[static_cast<size_t>(b)];
  for (int r = std::min(d - 1, pricing_.most_replicas(d)); r >= 1; --r) {
    if (best <= (end - begin) / (d * devices)) return;
    auto try_cut = [&](int s) {
      double before = row[slot(task.a, s, d - r, task.components)];
      if (before >= best || !pricing_.cuts.ordered(task.a, s) || !pricing_.cuts.ordered(s, b)) return;
      double cut = pricing_.cut(task.level, s);
      if (cut >= best) return;
      best = std::min(best, std::max({before, cut, last_stage(task, s, b, d, r)}));
    };
    double middle = begin + (end - begin) * (d - r) / d;
    int centre = static_cast<int>(std::lower_bound(done.begin() + task.a + 1, done.begin() + b, middle) -
                                  done.begin());
    for (int s = centre; s < b; ++s) {
      if ((done[static_cast<size_t>(s)] - begin) > best * kSlack * (d - r) * devices) break;
      try_cut(s);
    }
    for (int s = centre - 1; s > task.a; --s) {
      if ((end - done[static_cast<size_t>(s)]) > best * kSlack * r * devices) break;
      try_cut(s);
    }
  }
}

IntervalRows::Row IntervalRows::row(const Task& task) {
  const int m = task.components;
  Row row(slot(task.a, task.end + 1, 0, m), kInfinity);
  for (int b = task.a + 1; b <= task.end; ++b) {
    if (!pricing_.cuts.ordered(task.a, b)) continue;
    for (int d = 1; d <= m; ++d) {
      double& best = row[slot(task.a, b, d, m)];
      if (d <= pricing_.most_replicas(d)) best = last_stage(task, task.a, b, d, d);
      improve(task, row, b, d, best);
    }
  }
  return row;
}

const IntervalRows::Table& IntervalRows::table(int level, Behind behind) {
  std::unique_ptr<Table>& entry = tables_[{level, behind}];
  if (entry) return *entry;
  auto made = std::make_unique<Table>();
  const int end = pricing_.cuts.count(), components = pricing_.level(level).count;
  for (int a = 0; a < end; ++a) {
    Row values = row({level, behind, a, end, components});
    std::vector<double>& kept = made->values.emplace_back(static_cast<size_t>(end - a + 1), kInfinity);
    for (int b = a + 1; b <= end; ++b)
      kept[static_cast<size_t>(b - a)] = values[slot(a, b, components, components)];
  }
  std::unique_ptr<Table>& place = tables_[{level, behind}];
  place = std::move(made);
  return *place;
}

double IntervalRows::seconds(int level, Behind behind, int a, int b) {
  return table(level, behind).values[static_cast<size_t>(a)][static_cast<size_t>(b - a)];
}

double IntervalRows::seconds_with(int level, Behind behind, int a, int b, int components) {
  return row({level, behind, a, b, components})[slot(a, b, components, components)];
}

std::vector<PlanNode> IntervalRows::stages(int level, Behind behind, int a, int b, int components) {
  Task task{level, behind, a, b, components};
  Row values = row(task);
  auto value = [&](int boundary, int d) { return values[slot(a, boundary, d, components)]; };
  YOKE_CHECK(std::isfinite(value(b, components)), "no plan for layers {} to {}", a, b);
  std::vector<PlanNode> reversed;
  auto add = [&](int from, int to, int d, int r) {
    PlanNode node{from, to, r, {}};
    if (level > 0)
      node.inner = stages(level - 1, below(task, d, r), from, to, pricing_.level(level - 1).count);
    reversed.push_back(std::move(node));
  };
  // The stages before the last cut may be slower than what was best with it: any that attains the value
  // serves.
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
