#include "yoke/plan/pipeline/unequal_search.h"

#include <algorithm>
#include <bit>

#include "yoke/base/error.h"
#include "yoke/plan/at.h"
#include "yoke/plan/pipeline/falling_limit.h"

namespace yoke::plan {

UnequalSearch::UnequalSearch(const Pricing& pricing, const DeviceStates& states)
    : pricing_(pricing), states_(states), end_(pricing.cuts.count()), into_(states.steps.size()) {
  for (const PlanDevice& device : pricing.options.devices) fastest_ += device.speed;
  for (size_t from = 0; from < states.steps.size(); ++from)
    for (const DeviceStates::Step& step : states.steps[from])
      into_[at(step.to)].push_back({0, 0, static_cast<int>(from), step.to, step.group});
}

double UnequalSearch::price(const DeviceGroup& group, int a, int b) const {
  return pricing_.stage(0, pricing_.cuts.seconds_of(a, b) / group.slowest, a, b, group.replicas, a == 0);
}

// 1F1B keeps ceil(devices from this stage on / replicas) minibatches in flight.
int64_t UnequalSearch::versions(int state, const DeviceGroup& group) const {
  return (states_.taken[at(state)] + group.replicas - 1) / group.replicas + 1;
}

bool UnequalSearch::allowed(double limit, const DeviceGroup& group, int64_t versions, int a, int b) const {
  return pricing_.cuts.ordered(a, b) && price(group, a, b) <= limit &&
         static_cast<double>(versions) * pricing_.bytes_per_version(a, b) <= group.least_memory;
}

// In a chain whose stages do not pay for cuts, a stage that starts later costs less in every respect.
const UnequalSearch::Lowest& UnequalSearch::lowest(double limit, const DeviceGroup& group, int64_t versions) {
  auto [entry, fresh] = lowest_.try_emplace(std::pair(group, versions));
  if (!fresh) return entry->second;
  Lowest& lowest = entry->second;
  lowest.resize(at(end_) + 1);
  for (int b = 1, a = 0; b <= end_; ++b) {
    while (a < b && !allowed(limit, group, versions, a, b)) ++a;
    lowest[at(b)] = a;
  }
  return lowest;
}

void UnequalSearch::pass_on(double limit, const Bits& ends, const DeviceGroup& group, int64_t versions,
                            Bits& begins) {
  const bool monotone = pricing_.cuts.part_of.empty() && !pricing_.stages_pay_cuts();
  const Lowest* first = monotone ? &lowest(limit, group, versions) : nullptr;
  int covered = end_ + 1;  // ranges move down from the last end to the first: everything above this is marked
  for (size_t word = ends.size(); word-- > 0;) {
    for (uint64_t bits = ends[word]; bits != 0;) {
      const int place = 63 - std::countl_zero(bits), b = static_cast<int>(word) * 64 + place;
      bits &= ~(uint64_t{1} << place);
      if (monotone) {
        const int low = (*first)[at(b)], high = std::min(b, covered) - 1;
        if (low <= high) set_bits(begins, at(low), at(high));
        covered = std::min(covered, low);
        continue;
      }
      for (int a = b - 1; a >= 0; --a)
        if (allowed(limit, group, versions, a, b)) set_bit(begins, at(a));
    }
  }
}

void UnequalSearch::fill(double limit, const Reach& after, Reach& reach) {
  for (size_t state = 0; state < into_.size(); ++state) {
    Bits begins(open_.size());
    for (const UnequalStage& step : into_[state]) {
      const Bits& ends = after[at(step.from)];
      if (std::all_of(ends.begin(), ends.end(), [](uint64_t word) { return word == 0; })) continue;
      const DeviceGroup& group = states_.groups[at(step.group)];
      pass_on(limit, ends, group, versions(step.from, group), begins);
    }
    // States only lead to later ones: with one table this row is complete and can be used for the next.
    for (size_t word = 0; word < begins.size(); ++word) reach[state][word] |= begins[word] & open_[word];
  }
}

UnequalStage UnequalSearch::first_stage(double limit, int a, int state, const Reach& after) const {
  for (int b = end_; b > a; --b) {
    for (UnequalStage step : into_[at(state)]) {
      const DeviceGroup& group = states_.groups[at(step.group)];
      if (!has_bit(after[at(step.from)], at(b)) || !allowed(limit, group, versions(step.from, group), a, b))
        continue;
      step.begin = a;
      step.end = b;
      return step;
    }
  }
  YOKE_CHECK(false, "no stage after boundary {} within {} s", a, limit);
  return {};
}

std::optional<UnequalSearch::Found> UnequalSearch::within(double limit, int stages) {
  lowest_.clear();
  open_.assign(at(end_) / 64 + 1, 0);
  for (int b = 0; b <= end_; ++b)
    if (b == 0 || b == end_ || pricing_.cut(0, b) <= limit) set_bit(open_, at(b));
  layers_.assign(at(stages) + 1, Reach(into_.size(), Bits(open_.size())));
  set_bit(layers_.front()[0], at(end_));
  if (stages == 0) fill(limit, layers_.front(), layers_.front());
  for (size_t left = 1; left <= at(stages); ++left) fill(limit, layers_[left - 1], layers_[left]);
  int state = -1;
  for (int candidate = 1; candidate < static_cast<int>(into_.size()); ++candidate) {
    if (!has_bit(layers_.back()[at(candidate)], 0)) continue;
    if (candidate != states_.all && !pricing_.options.fewer_devices) continue;
    if (state < 0 || states_.taken[at(candidate)] < states_.taken[at(state)]) state = candidate;
  }
  if (state < 0) return std::nullopt;
  Found found;
  for (int a = 0, left = stages; a < end_; a = found.stages.back().end) {
    found.stages.push_back(first_stage(limit, a, state, layers_[stages == 0 ? 0 : at(--left)]));
    const UnequalStage& stage = found.stages.back();
    found.seconds = std::max(found.seconds, price(states_.groups[at(stage.group)], stage.begin, stage.end));
    if (a > 0) found.seconds = std::max(found.seconds, pricing_.cut(0, a));
    state = stage.from;
  }
  return found;
}

std::optional<UnequalSearch::Found> UnequalSearch::best(int stages) {
  const double bound = pricing_.cuts.seconds.back() / fastest_ * (1 - 1e-9);
  return fastest_within(bound, [&](double limit) { return within(limit, stages); });
}

}  // namespace yoke::plan
