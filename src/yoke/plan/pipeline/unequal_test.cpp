#include "yoke/plan/pipeline/unequal.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "yoke/base/error.h"
#include "yoke/base/random.h"
#include "yoke/plan/pipeline/planner.h"

namespace yoke::plan {
namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

struct UnequalProblem {
  Profile profile;
  PlanOptions options;
};

double pick(Random& random, std::initializer_list<double> values) {
  return values.begin()[random.below(values.size())];
}

UnequalProblem random_problem(Random& random, bool with_memory) {
  UnequalProblem problem;
  size_t layers = 1 + random.below(5), devices = 1 + random.below(4);
  for (size_t i = 0; i < layers; ++i)
    problem.profile.layers.push_back(
        {"l", static_cast<double>(random.below(4)), static_cast<double>(random.below(8)),
         static_cast<double>(random.below(30)), static_cast<double>(random.below(60))});
  const char* names[] = {"ring", "paper2018", "paper2019", "released"};
  PlanOptions& options = problem.options;
  options.model = &cost_model(names[random.below(4)]);
  options.activation_cost = random.below(3) > 0;
  options.straight = random.below(8) == 0;
  options.fewer_devices = random.below(3) == 0;
  options.levels = {{static_cast<int>(devices), static_cast<double>(1 + random.below(20))}};
  for (size_t i = 0; i < devices; ++i)
    options.devices.push_back(
        {pick(random, {0.5, 1, 1, 2}), with_memory ? pick(random, {60, 150, 150, 400}) : kUnlimited});
  return problem;
}

// Every way to give layers and devices to stages, from the definitions.
class EveryAssignment {
 public:
  explicit EveryAssignment(const UnequalProblem& problem)
      : problem_(problem),
        cuts_(prefix_cuts(problem.profile)),
        count_(static_cast<int>(problem.options.devices.size())) {}

  double best() {
    extend(0, 0, {});
    return best_;
  }

 private:
  struct Stage {
    int begin, end;
    unsigned devices;
  };

  void extend(int begin, unsigned used, std::vector<Stage> stages) {
    if (begin == cuts_.count()) {
      if (!problem_.options.fewer_devices && used != (1u << count_) - 1) return;
      best_ = std::min(best_, price(stages));
      return;
    }
    for (int end = begin + 1; end <= cuts_.count(); ++end) {
      for (unsigned set = 1; set < 1u << count_; ++set) {
        if ((set & used) != 0 || (problem_.options.straight && std::popcount(set) > 1)) continue;
        stages.push_back({begin, end, set});
        extend(end, used | set, stages);
        stages.pop_back();
      }
    }
  }

  double price(const std::vector<Stage>& stages) const {
    const CostModel& model = *problem_.options.model;
    const double bandwidth = problem_.options.levels[0].bandwidth;
    double seconds = 0;
    int left = 0;
    for (const Stage& stage : stages) left += std::popcount(stage.devices);
    for (const Stage& stage : stages) {
      int r = std::popcount(stage.devices), versions = (left + r - 1) / r;
      left -= r;
      double slowest = kUnlimited, memory = kUnlimited;
      for (int d = 0; d < count_; ++d) {
        if ((stage.devices >> d & 1) == 0) continue;
        slowest = std::min(slowest, problem_.options.devices[static_cast<size_t>(d)].speed);
        memory = std::min(memory, problem_.options.devices[static_cast<size_t>(d)].memory);
      }
      double bytes = cuts_.weights_of(stage.begin, stage.end) + cuts_.activations_of(stage.begin, stage.end);
      if (versions * bytes > memory) return kUnlimited;
      double sync = model.sync_seconds(r, cuts_.weights_of(stage.begin, stage.end), bandwidth);
      seconds =
          std::max(seconds, model.stage_seconds(cuts_.seconds_of(stage.begin, stage.end) / slowest, sync, r));
      if (!problem_.options.activation_cost || stage.begin == 0) continue;
      double in = cuts_.crossing_at(stage.begin), out = cuts_.crossing_at(stage.end);
      seconds = std::max(seconds,
                         model.released_rules ? 2 * std::max(in, out) / (bandwidth * r) : 2 * in / bandwidth);
    }
    return seconds;
  }

  const UnequalProblem& problem_;
  const Cuts cuts_;
  const int count_;
  double best_ = kUnlimited;
};

TEST(UnequalDevices, EqualTryingEveryAssignment) {
  Random random(21);
  int found = 0;
  for (int i = 0; i < 1200; ++i) {
    UnequalProblem problem = random_problem(random, i % 2 == 1);
    double best = EveryAssignment(problem).best();
    Cuts cuts = prefix_cuts(problem.profile);
    if (best == kUnlimited) {
      EXPECT_THROW(make_plan(cuts, problem.options), ConfigError);
      continue;
    }
    PipelinePlan plan = make_plan(cuts, problem.options);
    ++found;
    ASSERT_NEAR(plan.bottleneck_seconds, best, 1e-9 * best) << "case " << i << " " << plan.config;
    EXPECT_TRUE(plan.exact);
    for (const PipelineStage& stage : plan.stages) {
      EXPECT_EQ(stage.devices.size(), static_cast<size_t>(stage.replicas));
      for (int device : stage.devices) {
        EXPECT_LE(stage.memory_bytes, problem.options.devices[static_cast<size_t>(device)].memory);
        EXPECT_GE(problem.options.devices[static_cast<size_t>(device)].speed, stage.slowest);
      }
    }
    EXPECT_EQ(parse_plan(to_json(plan), "p.json"), plan);
  }
  EXPECT_GT(found, 600);
}

UnequalProblem equal_layers(int layers, std::vector<double> speeds) {
  UnequalProblem problem;
  for (int i = 0; i < layers; ++i) problem.profile.layers.push_back({"l", 1, 1, 1, 1000});
  problem.options.model = &cost_model("ring");
  problem.options.levels = {{static_cast<int>(speeds.size()), 100}};
  for (double speed : speeds) problem.options.devices.push_back({speed, kUnlimited});
  return problem;
}

TEST(UnequalDevices, SlowOnesGetFewerLayers) {
  UnequalProblem problem = equal_layers(12, {1, 2, 1});
  problem.options.straight = true;
  PipelinePlan plan = make_plan(prefix_cuts(problem.profile), problem.options);
  EXPECT_DOUBLE_EQ(plan.bottleneck_seconds, 6);
  for (const PipelineStage& stage : plan.stages)
    EXPECT_EQ(stage.last - stage.first + 1, stage.devices[0] == 1 ? 6 : 3);
  EXPECT_DOUBLE_EQ(plan.one_device_seconds, 12) << "on the fastest";
}

TEST(UnequalDevices, DevicesThatAreAllAlikeGiveThePlanOfEqualOnes) {
  Random random(9);
  for (int i = 0; i < 200; ++i) {
    UnequalProblem problem = random_problem(random, false);
    for (PlanDevice& device : problem.options.devices) device = {};
    Cuts cuts = prefix_cuts(problem.profile);
    PlanOptions plain = problem.options;
    plain.devices.clear();
    auto seconds = [&](const PlanOptions& options) {
      try {
        return make_plan(cuts, options).bottleneck_seconds;
      } catch (const ConfigError&) {
        return kUnlimited;
      }
    };
    EXPECT_EQ(seconds(problem.options), seconds(plain));
  }
}

TEST(UnequalDevices, ManyKindsAreSearchedInOrderAndThatIsSaid) {
  std::vector<double> speeds;
  for (int i = 0; i < 24; ++i) speeds.push_back(1 + 0.1 * i);
  UnequalProblem problem = equal_layers(200, speeds);
  PipelinePlan plan = make_plan(prefix_cuts(problem.profile), problem.options);
  EXPECT_FALSE(plan.exact);
  double all = 0;
  for (double speed : speeds) all += speed;
  EXPECT_GE(plan.bottleneck_seconds, 400 / all * (1 - 1e-9));
  EXPECT_LE(plan.bottleneck_seconds, 1.2 * 400 / all) << plan.config;
}

TEST(UnequalDevices, TheBestOfEachNumberOfStages) {
  UnequalProblem problem = equal_layers(6, {1, 1, 0.5, 0.5});
  Cuts cuts = prefix_cuts(problem.profile);
  std::vector<PipelinePlan> plans = plans_by_stages(cuts, problem.options, 4);
  ASSERT_EQ(plans.size(), 4u);
  double best = kUnlimited;
  for (size_t i = 0; i < plans.size(); ++i) {
    EXPECT_EQ(plans[i].stages.size(), i + 1);
    best = std::min(best, plans[i].bottleneck_seconds);
  }
  EXPECT_EQ(best, make_plan(cuts, problem.options).bottleneck_seconds);
}

TEST(UnequalDevices, RefuseWhatCannotBe) {
  UnequalProblem problem = equal_layers(4, {1, 2});
  Cuts cuts = prefix_cuts(problem.profile);
  auto refused = [&](auto change) {
    PlanOptions options = problem.options;
    change(options);
    EXPECT_THROW(make_plan(cuts, options), ConfigError);
    EXPECT_THROW(plans_by_stages(cuts, options, 2), ConfigError);
  };
  refused([](PlanOptions& options) { options.levels.push_back({2, 1}); });
  refused([](PlanOptions& options) { options.devices.pop_back(); });
  refused([](PlanOptions& options) { options.devices[0].speed = 0; });
  refused([](PlanOptions& options) { options.devices[0].speed = kUnlimited; });
  refused([](PlanOptions& options) { options.devices[0].memory = 0; });
  problem.options.devices[1].memory = 10;
  EXPECT_THROW(make_plan(cuts, problem.options), ConfigError);
  problem.options.fewer_devices = true;
  EXPECT_EQ(make_plan(cuts, problem.options).devices_used, 1);
}

}  // namespace
}  // namespace yoke::plan
