// The fastest plan of the outermost level, found by asking "is there a plan within T?" for decreasing T.
//
// For a given T each stage [a, b) admits a few ranges of replica counts, so the numbers of components that
// suffice for the rest of the network form a set of runs. One query costs O(N^2) range operations instead of
// the O(N^2 M^2) steps of the textbook recurrence; the result is the same.
#pragma once

#include <optional>
#include <vector>

#include "yoke/plan/pipeline/bit_set.h"
#include "yoke/plan/pipeline/pricing.h"

namespace yoke::plan {

class ThresholdSearch {
 public:
  // [a][b - a]: time of [a, b) on one whole component.
  using Inner = std::vector<std::vector<double>>;

  // `inner` nullptr: components are devices. Keeps references to both.
  ThresholdSearch(const Pricing& pricing, const Inner* inner);

  struct Found {
    double seconds = 0;  // the bottleneck
    std::vector<PlanNode> stages;
  };
  // The best plan, with exactly `stages` stages unless 0. Empty: none exists (memory, or more devices than a
  // straight pipeline has layers). Among equally fast plans, the one with the longest first stage.
  std::optional<Found> best(int stages = 0);

 private:
  struct Run {
    int low;
    int high;
  };
  using Runs = std::vector<Run>;
  using Sets = std::vector<Runs>;  // [boundary]: numbers of components that suffice for the rest
  struct Replicas {                // allowed for a stage: 1, and low to high
    bool one = false;
    int low = 2;
    int high = 1;
  };

  std::optional<Found> within(double limit, int stages);
  void fill(double limit, const Sets& after, Sets& sets);
  double inner(int a, int b) const {
    return inner_ == nullptr ? pricing_.cuts.seconds_of(a, b)
                             : (*inner_)[static_cast<size_t>(a)][static_cast<size_t>(b - a)];
  }
  bool adds_nothing(double limit, double inner_seconds, const Runs& after) const;
  void pass_on(int a, int b, const Replicas& replicas, const Runs& after);
  Replicas allowed(double limit, int a, int b, double inner_seconds, Replicas& hint) const;
  void mark(int64_t low, int64_t high);
  Runs marked_runs() const;
  bool reaches(const Runs& runs, int components) const;
  int components_used(const Runs& runs) const;  // 0: none of the wanted ones
  const Sets& sets_with(int stages_left) const;
  int replicas_before(double limit, int a, int b, int components, const Runs& runs) const;
  PlanNode next_stage(double limit, int a, int components, const Sets& after) const;
  double price(const std::vector<PlanNode>& stages) const;

  const Pricing& pricing_;
  const Inner* inner_;
  const int level_;
  const int components_;
  const double devices_below_;
  std::vector<Sets> layers_;  // [number of stages], or a single one for any number
  Bits marks_;
  int tail_ = 0;  // all counts from here on are marked
};

}  // namespace yoke::plan
