// The planner against trying every plan, on thousands of small random problems.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "yoke/base/error.h"
#include "yoke/base/random.h"
#include "yoke/plan/pipeline/interval_rows.h"
#include "yoke/plan/pipeline/planner.h"

namespace yoke::plan {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Problem {
  Profile profile;
  PlanOptions options;
};

Problem random_problem(Random& random, size_t most_levels, bool with_memory) {
  Problem problem;
  size_t layers = 1 + random.below(6);
  for (size_t i = 0; i < layers; ++i) {
    double forward = static_cast<double>(random.below(4)), backward = static_cast<double>(random.below(8));
    problem.profile.layers.push_back({"l" + std::to_string(i), forward, backward,
                                      static_cast<double>(random.below(30)),
                                      static_cast<double>(random.below(60))});
  }
  for (size_t to = 1; to < layers; ++to) {
    problem.profile.edges.push_back({static_cast<int>(to) - 1, static_cast<int>(to)});
    if (random.below(4) == 0 && to > 1)
      problem.profile.edges.push_back({static_cast<int>(random.below(to - 1)), static_cast<int>(to)});
  }
  const char* names[] = {"ring", "paper2018", "paper2019", "released"};
  PlanOptions& options = problem.options;
  options.model = &cost_model(names[random.below(4)]);
  options.activation_cost = random.below(3) > 0;
  options.straight = random.below(8) == 0;
  options.fewer_devices = random.below(3) == 0;
  size_t levels = 1 + random.below(most_levels);
  for (size_t k = 0; k < levels; ++k) {
    int count = 1 + static_cast<int>(random.below(levels == 1 ? 6 : levels == 2 ? 4 : 3));
    options.levels.push_back({count, static_cast<double>(1 + random.below(20))});
  }
  if (with_memory) options.memory = static_cast<double>(20 + random.below(500));
  return problem;
}

// Everything written anew from the definitions: sums, crossing bytes, prices, versions.
class EveryPlan {
 public:
  explicit EveryPlan(const Problem& problem) : layers_(problem.profile.layers), problem_(problem) {
    for (const Level& level : problem.options.levels) devices_ *= level.count;
  }

  double best() {
    int top = static_cast<int>(problem_.options.levels.size()) - 1, all = level(top).count;
    double result = kInfinity;
    for (int used = problem_.options.fewer_devices ? 1 : all; used <= all; ++used)
      result = std::min(result, solve(top, 0, static_cast<int>(layers_.size()), used, 0));
    return result;
  }

 private:
  const Level& level(int k) const { return problem_.options.levels[static_cast<size_t>(k)]; }

  double sum(int a, int b, const std::function<double(const Layer&)>& what) const {
    double total = 0;
    for (int i = a; i < b; ++i) total += what(layers_[static_cast<size_t>(i)]);
    return total;
  }

  double crossing(int b) const {
    double bytes = 0;
    for (int i = 0; i < b; ++i) {
      bool read_later = false;
      for (const Edge& edge : problem_.profile.edges) read_later |= edge.from == i && edge.to >= b;
      if (read_later) bytes += layers_[static_cast<size_t>(i)].activation_bytes;
    }
    return bytes;
  }

  // Layers [a, b) on `left` components of the level, `behind` of them kept busy by later stages outside.
  double solve(int k, int a, int b, int left, double behind) { return rest(k, a, a, b, left, behind); }

  double rest(int k, int begin, int a, int b, int left, double behind) {
    if (a == b) return left == 0 ? 0 : kInfinity;
    double result = kInfinity;
    for (int end = a + 1; end <= b; ++end) {
      for (int r = 1; r <= (problem_.options.straight ? std::min(1, left) : left); ++r) {
        double time =
            std::max(stage(k, begin, a, end, r, left, behind), rest(k, begin, end, b, left - r, behind));
        if (end < b && costs_cuts()) time = std::max(time, 2 * crossing(end) / level(k).bandwidth);
        result = std::min(result, time);
      }
    }
    return result;
  }

  bool costs_cuts() const {
    return problem_.options.activation_cost && std::string(problem_.options.model->name) != "released";
  }

  double stage(int k, int begin, int a, int b, int r, int left, double behind) {
    std::string model = problem_.options.model->name;
    double inner = 0;
    if (k == 0) {
      double versions = std::ceil((behind + left) / r - 1e-9);
      double bytes = sum(a, b, [](const Layer& l) { return l.parameter_bytes + l.activation_bytes; });
      if (versions * bytes > problem_.options.memory) return kInfinity;
      inner = sum(a, b, [](const Layer& l) { return l.forward + l.backward; });
    } else {
      int inside = level(k - 1).count;
      inner = solve(k - 1, a, b, inside, (behind + left - r) * inside / r);
    }
    double weights = sum(a, b, [](const Layer&l) { return l.parameter_bytes; }),
           bandwidth = level(k).bandwidth;
    if (model == "ring") return std::max(inner, 2.0 * (r - 1) / r * weights / bandwidth) / r;
    if (model == "paper2018") return std::max(inner, 4.0 * (r - 1) / r * weights / bandwidth) / r;
    if (model == "paper2019") return std::max(inner, 2.0 * (r - 1) * weights / bandwidth) / r;
    double sync = 4.0 * (r - 1) / r * weights / bandwidth;
    if (a == begin && k > 0) sync /= level(k - 1).count;
    double time = (inner + sync) / r;
    if (a > begin && problem_.options.activation_cost) {
      double out = b == static_cast<int>(layers_.size()) ? 0 : crossing(b);
      time = std::max(time, 2 * std::max(crossing(a), out) / (bandwidth * r));
    }
    return time;
  }

  const std::vector<Layer>& layers_;
  const Problem& problem_;
  int devices_ = 1;
};

std::string describe(const Problem& problem) {
  return std::string(problem.options.model->name) + " on " + to_string(problem.options.levels) +
         (problem.options.straight ? " straight" : "") + (problem.options.fewer_devices ? " fewer" : "") +
         "\n" + to_json(problem.profile);
}

void compare(const Problem& problem) {
  double wanted = EveryPlan(problem).best();
  Cuts cuts = prefix_cuts(problem.profile);
  if (!std::isfinite(wanted)) {
    EXPECT_THROW(make_plan(cuts, problem.options), ConfigError) << describe(problem);
    return;
  }
  PipelinePlan plan = make_plan(cuts, problem.options);
  ASSERT_NEAR(plan.bottleneck_seconds, wanted, 1e-9 * wanted) << plan.config << " " << describe(problem);
  for (const PipelineStage& stage : plan.stages)
    ASSERT_LE(stage.memory_bytes, problem.options.memory) << plan.config << " " << describe(problem);
}

TEST(PlannerExhaustive, FlatPlansEqualTheBestOfAll) {
  Random random(1);
  for (int i = 0; i < 4000; ++i) compare(random_problem(random, 1, false));
}

TEST(PlannerExhaustive, FlatPlansUnderAMemoryLimitEqualTheBestOfAll) {
  Random random(2);
  for (int i = 0; i < 4000; ++i) compare(random_problem(random, 1, true));
}

TEST(PlannerExhaustive, HierarchicalPlansEqualTheBestOfAll) {
  Random random(3);
  for (int i = 0; i < 600; ++i) compare(random_problem(random, 3, false));
}

TEST(PlannerExhaustive, HierarchicalPlansUnderAMemoryLimitEqualTheBestOfAll) {
  Random random(4);
  for (int i = 0; i < 600; ++i) compare(random_problem(random, 3, true));
}

TEST(PlannerExhaustive, TheBestOfAllStageCountsIsTheBest) {
  Random random(5);
  for (int i = 0; i < 300; ++i) {
    Problem problem = random_problem(random, 2, false);
    problem.options.straight = false;
    Cuts cuts = prefix_cuts(problem.profile);
    double best = kInfinity;
    for (const PipelinePlan& plan : plans_by_stages(cuts, problem.options, cuts.count()))
      best = std::min(best, plan.bottleneck_seconds);
    double wanted = make_plan(cuts, problem.options).bottleneck_seconds;
    ASSERT_NEAR(best, wanted, 1e-9 * wanted) << describe(problem);
  }
}

}  // namespace
}  // namespace yoke::plan
