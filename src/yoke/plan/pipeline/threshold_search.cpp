#include "yoke/plan/pipeline/threshold_search.h"

#include <algorithm>
#include <bit>

#include "yoke/base/error.h"
#include "yoke/plan/pipeline/falling_limit.h"

namespace yoke::plan {
namespace {

constexpr double kBoundSlack = 1 + 1e-12;  // lower bounds are sums in another order

}  // namespace

ThresholdSearch::ThresholdSearch(const Pricing& pricing, const Inner* inner)
    : pricing_(pricing),
      inner_(inner),
      level_(pricing.levels() - 1),
      components_(pricing.level(level_).count),
      devices_below_(pricing.devices_below(level_)),
      marks_(static_cast<size_t>(components_) / 64 + 1) {}

void ThresholdSearch::mark(int64_t low, int64_t high) {
  if (high >= components_ && low < tail_) tail_ = static_cast<int>(low);
  high = std::min<int64_t>(high, components_);
  if (low > high) return;
  set_bits(marks_, static_cast<size_t>(low), static_cast<size_t>(high));
}

ThresholdSearch::Runs ThresholdSearch::marked_runs() const {
  Runs runs;
  for (size_t word = 0; word < marks_.size(); ++word) {
    for (uint64_t bits = marks_[word]; bits != 0;) {
      int low = std::countr_zero(bits), length = std::countr_one(bits >> low);
      int begin = static_cast<int>(word) * 64 + low, end = begin + length - 1;
      if (!runs.empty() && runs.back().high + 1 == begin)
        runs.back().high = end;
      else
        runs.push_back({begin, end});
      bits = length == 64 ? 0 : bits & ~(((uint64_t{1} << length) - 1) << low);
    }
  }
  return runs;
}

// For r >= 2 stage_seconds() is decreasing, or the maximum of a decreasing and an increasing part: the values
// within the limit form one range. Its ends are rarely far from those of the last query, the hint.
ThresholdSearch::Replicas ThresholdSearch::allowed(double limit, int a, int b, double inner_seconds,
                                                   Replicas& hint) const {
  const bool first = a == 0;
  auto within_limit = [&](int r) { return pricing_.stage(level_, inner_seconds, a, b, r, first) <= limit; };
  Replicas replicas;
  replicas.one = within_limit(1);
  int most = pricing_.most_replicas(components_);
  if (most < 2) return replicas;
  const bool rises = pricing_.model().volume_per_replica_rises;
  auto fits = [&](int r) { return rises ? inner_seconds / r <= limit : within_limit(r); };
  int& low = hint.low;
  low = std::clamp(low, 2, most + 1);
  while (low <= most && !fits(low)) ++low;
  while (low > 2 && fits(low - 1)) --low;
  replicas.low = low;
  replicas.high = most;
  if (!rises || low > most) return replicas;
  int& high = hint.high;
  high = std::clamp(high, low - 1, most);
  while (high >= low && !within_limit(high)) --high;
  while (high < most && within_limit(high + 1)) ++high;
  replicas.high = high;
  return replicas;
}

// Most stages need so many components that all they could mark is marked already.
bool ThresholdSearch::adds_nothing(double limit, double inner_seconds, const Runs& after) const {
  if (inner_seconds <= limit || pricing_.model().volume_per_replica_rises) return false;
  return inner_seconds > limit * kBoundSlack * (tail_ - 1 - after.front().low);
}

// A stage of r components before d others keeps ceil((r + d)/r) versions: if `fit` of them fit in memory, d
// is at most (fit - 1) r. So a run of d becomes one run of r + d.
void ThresholdSearch::pass_on(int a, int b, const Replicas& replicas, const Runs& after) {
  int64_t fit = level_ == 0 ? pricing_.versions_that_fit(a, b) : Pricing::kAnyNumber;
  if (fit < 1) return;
  for (const Run& run : after) {
    if (replicas.one) mark(run.low + 1, std::min<int64_t>(run.high, fit - 1) + 1);
    if (replicas.low > replicas.high) continue;
    int64_t high = std::min<int64_t>(run.high, (fit - 1) * replicas.high);
    if (high < run.low) continue;
    int64_t needed = run.low == 0 ? 1 : (run.low + fit - 2) / (fit - 1);
    mark(run.low + std::max<int64_t>(replicas.low, needed), high + replicas.high);
  }
}

void ThresholdSearch::fill(double limit, const Sets& after, Sets& sets) {
  const Cuts& cuts = pricing_.cuts;
  const int end = cuts.count();
  auto open = [&](int b) { return b == 0 || b == end || pricing_.cut(level_, b) <= limit; };
  for (int a = end - 1; a >= 0; --a) {
    sets[static_cast<size_t>(a)].clear();
    if (!open(a)) continue;
    std::fill(marks_.begin(), marks_.end(), 0);
    tail_ = components_ + 1;
    Replicas hint{false, 2, components_};
    for (int b = a + 1; b <= end; ++b) {
      const Runs& runs = after[static_cast<size_t>(b)];
      if (runs.empty() || !cuts.ordered(a, b)) continue;
      if (cuts.seconds_of(a, b) / (devices_below_ * components_) > limit * kBoundSlack) break;
      double inner_seconds = inner(a, b);
      if (adds_nothing(limit, inner_seconds, runs)) continue;
      pass_on(a, b, allowed(limit, a, b, inner_seconds, hint), runs);
    }
    sets[static_cast<size_t>(a)] = marked_runs();
  }
}

bool ThresholdSearch::reaches(const Runs& runs, int components) const {
  return std::any_of(runs.begin(), runs.end(),
                     [&](const Run& run) { return run.low <= components && components <= run.high; });
}

int ThresholdSearch::components_used(const Runs& runs) const {
  if (pricing_.options.fewer_devices) return runs.empty() ? 0 : runs.front().low;
  return reaches(runs, components_) ? components_ : 0;
}

const ThresholdSearch::Sets& ThresholdSearch::sets_with(int stages_left) const {
  return layers_.size() == 1 ? layers_.front() : layers_[static_cast<size_t>(stages_left)];
}

// The largest replica count with which stage [a, b) can precede what `runs` can do; 0: none.
int ThresholdSearch::replicas_before(double limit, int a, int b, int components, const Runs& runs) const {
  const int64_t fit = level_ == 0 ? pricing_.versions_that_fit(a, b) : Pricing::kAnyNumber;
  if (fit < 1) return 0;
  const double inner_seconds = inner(a, b);
  const int most = pricing_.most_replicas(components);
  auto works = [&](int r) {
    return (components - r) <= (fit - 1) * r &&
           pricing_.stage(level_, inner_seconds, a, b, r, a == 0) <= limit;
  };
  for (const Run& run : runs) {  // few components behind leave many for this stage
    int high = std::min(most, components - run.low), low = std::max(1, components - run.high);
    if (high < low) continue;
    if (pricing_.model().volume_per_replica_rises) {
      for (int r = high; r >= low; --r)
        if (works(r)) return r;
      continue;
    }
    // From 2 on, fewer are slower and keep more versions each.
    if (works(high)) return high;
    if (low == 1 && works(1)) return 1;
  }
  return 0;
}

PlanNode ThresholdSearch::next_stage(double limit, int a, int components, const Sets& after) const {
  for (int b = pricing_.cuts.count(); b > a; --b) {
    const Runs& runs = after[static_cast<size_t>(b)];
    if (runs.empty() || !pricing_.cuts.ordered(a, b)) continue;
    if (b < pricing_.cuts.count() && pricing_.cut(level_, b) > limit) continue;
    if (int r = replicas_before(limit, a, b, components, runs); r > 0) return {a, b, r, {}};
  }
  YOKE_CHECK(false, "no stage after boundary {} with {} components within {} s", a, components, limit);
  return {};
}

double ThresholdSearch::price(const std::vector<PlanNode>& stages) const {
  double seconds = 0;
  for (const PlanNode& node : stages) {
    seconds = std::max(seconds, pricing_.stage(level_, inner(node.begin, node.end), node.begin, node.end,
                                               node.replicas, node.begin == 0));
    if (node.begin > 0) seconds = std::max(seconds, pricing_.cut(level_, node.begin));
  }
  return seconds;
}

std::optional<ThresholdSearch::Found> ThresholdSearch::within(double limit, int stages) {
  const auto end = static_cast<size_t>(pricing_.cuts.count());
  layers_.assign(static_cast<size_t>(stages) + 1, Sets(end + 1));
  layers_.front()[end] = {{0, 0}};
  if (stages == 0) fill(limit, layers_.front(), layers_.front());
  for (size_t left = 1; left <= static_cast<size_t>(stages); ++left)
    fill(limit, layers_[left - 1], layers_[left]);
  int components = components_used(layers_.back()[0]);
  if (components == 0) return std::nullopt;
  Found found;
  int left = stages;
  for (int a = 0; a < pricing_.cuts.count(); a = found.stages.back().end) {
    found.stages.push_back(next_stage(limit, a, components, sets_with(--left)));
    components -= found.stages.back().replicas;
  }
  found.seconds = price(found.stages);
  return found;
}

std::optional<ThresholdSearch::Found> ThresholdSearch::best(int stages) {
  // Lower bound: all devices busy with nothing but compute.
  const double bound = pricing_.cuts.seconds.back() / (devices_below_ * components_) * (1 - 1e-9);
  return fastest_within(bound, [&](double limit) { return within(limit, stages); });
}

}  // namespace yoke::plan
