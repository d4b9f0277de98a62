// Against theory. The figures are those of Dutta et al. and of a linear recursion for the second moments on
// the quadratic; tolerances follow from the number of samples (five standard errors), with fixed seeds.
#include "yoke/sim/ps_simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "yoke/base/error.h"
#include "yoke/sim/ps_finish_times.h"

namespace yoke::sim {
namespace {

using plan::Rule;
using testing::HasSubstr;
using testing::ThrowsMessage;

PsSimulation simulation_of(Rule rule, int workers, int64_t k, const std::string& law,
                           int64_t updates = 100'000) {
  PsSimulation simulation;
  simulation.policy = {rule, workers, k, 0};
  simulation.law = plan::parse_delay_law(law);
  simulation.updates = updates;
  return simulation;
}

// The standard deviation of the time of one update is below its mean for all laws here.
double five_errors(int64_t updates) {
  return 5 / std::sqrt(static_cast<double>(updates));
}

double harmonic(int n) {
  double sum = 0;
  for (int i = 1; i <= n; ++i) sum += 1.0 / i;
  return sum;
}

// E[X_{K:P}], the K-th of P.
double order_statistic(const plan::DelayLaw& law, int p, int k) {
  if (law.kind == plan::DelayLaw::Kind::kPareto) {
    double a = 1 / law.shape;
    return law.scale * std::exp(std::lgamma(p + 1) + std::lgamma(p - k + 1 - a) - std::lgamma(p - k + 1) -
                                std::lgamma(p + 1 - a));
  }
  return law.shift + law.scale * (harmonic(p) - harmonic(p - k));
}

constexpr const char* kLaws[] = {"exp:1s", "shifted_exp:1s,1s", "pareto:1s,3"};

TEST(PsSimulation, KSyncTakesTheKthOfPDelays) {
  for (const char* text : kLaws) {
    for (auto [p, k] : {std::pair{2, 1}, {2, 2}, {4, 2}, {4, 4}, {8, 1}, {8, 4}, {8, 8}}) {
      PsSimulation simulation = simulation_of(Rule::kKSync, p, k, text);
      double exact = order_statistic(simulation.law, p, k);
      PsOutcome outcome = simulate_ps(simulation);
      EXPECT_NEAR(outcome.seconds_per_update() / exact, 1, five_errors(simulation.updates)) << text << p << k;
      EXPECT_EQ(outcome.mean_staleness, 0);
      EXPECT_EQ(outcome.gradients, k * simulation.updates);
      EXPECT_EQ(outcome.cancelled, (p - k) * simulation.updates);
    }
  }
}

TEST(PsSimulation, KnownOrderStatistics) {
  EXPECT_NEAR(order_statistic(plan::parse_delay_law("exp:1s"), 8, 4), 0.634524, 1e-6);
  EXPECT_NEAR(order_statistic(plan::parse_delay_law("shifted_exp:1s,1s"), 4, 4), 3.083333, 1e-6);
  EXPECT_NEAR(order_statistic(plan::parse_delay_law("pareto:1s,3"), 8, 4), 1.242967, 1e-6);
}

TEST(PsSimulation, BatchRulesTakeARenewal) {
  for (const char* text : kLaws) {
    for (auto [p, k] : {std::pair{2, 2}, {8, 1}, {8, 4}, {4, 4}}) {
      PsSimulation simulation = simulation_of(Rule::kKBatchAsync, p, k, text);
      double exact = k * simulation.law.mean(0) / p;
      EXPECT_NEAR(simulate_ps(simulation).seconds_per_update() / exact, 1, five_errors(simulation.updates))
          << text;
    }
  }
  PsSimulation memoryless = simulation_of(Rule::kKBatchSync, 8, 4, "exp:1s");
  EXPECT_NEAR(simulate_ps(memoryless).seconds_per_update() / 0.5, 1, five_errors(memoryless.updates));
}

TEST(PsSimulation, AsyncIsFasterThanSyncByPTimesTheHarmonicNumber) {
  for (int p : {2, 4}) {
    double sync = simulate_ps(simulation_of(Rule::kSync, p, 0, "exp:1s")).seconds_per_update();
    double async = simulate_ps(simulation_of(Rule::kAsync, p, 0, "exp:1s")).seconds_per_update();
    EXPECT_NEAR(sync / async, p * harmonic(p), 2 * five_errors(100'000) * p * harmonic(p));
  }
}

// Values of another event simulation, with a standard error of 0.3 %.
TEST(PsSimulation, AgreesWhereThereIsNoClosedForm) {
  struct {
    const char* law;
    double batch_sync, async, async_fresh, batch_async_fresh;
  } rows[] = {{"exp:1s", 0.5, 0.634524, 0.5, 0.275818},
              {"shifted_exp:1s,1s", 1.632, 1.241, 0.255, 0.045},
              {"pareto:1s,3", 1.242, 0.944, 0.186, 0.016}};
  for (const auto& row : rows) {
    PsOutcome batch_sync = simulate_ps(simulation_of(Rule::kKBatchSync, 8, 4, row.law));
    PsOutcome async = simulate_ps(simulation_of(Rule::kKAsync, 8, 4, row.law));
    PsOutcome batch_async = simulate_ps(simulation_of(Rule::kKBatchAsync, 8, 4, row.law));
    EXPECT_NEAR(batch_sync.seconds_per_update() / row.batch_sync, 1, 0.01) << row.law;
    EXPECT_NEAR(async.seconds_per_update() / row.async, 1, 0.01) << row.law;
    EXPECT_NEAR(async.fresh(), row.async_fresh, 0.005) << row.law;
    EXPECT_NEAR(batch_async.fresh(), row.batch_async_fresh, 0.005) << row.law;
  }
}

// Sums of staleness telescope: the error is of the order workers / updates, whatever the law.
TEST(PsSimulation, MeanStalenessNeedsNoLaw) {
  for (const char* text : {"exp:1s", "shifted_exp:1s,1s", "pareto:1s,3", "pareto:1s,1.5", "const:2x"}) {
    for (auto [p, k] : {std::pair{4, 1}, {4, 2}, {4, 4}, {8, 1}, {8, 4}, {8, 3}}) {
      PsSimulation async = simulation_of(Rule::kKAsync, p, k, text, 20'000);
      PsSimulation batch = simulation_of(Rule::kKBatchAsync, p, k, text, 20'000);
      async.compute = batch.compute = 1;
      EXPECT_NEAR(simulate_ps(async).mean_staleness, (p - k) / double(k), 0.01 * p / k) << text << p << k;
      EXPECT_NEAR(simulate_ps(batch).mean_staleness, (p - 1) / double(k), 0.01 * p / k) << text << p << k;
    }
  }
}

TEST(PsSimulation, KAsyncUnderExponentialDelaysIsGeometric) {
  for (auto [p, k] : {std::pair{8, 1}, {8, 4}, {4, 2}}) {
    PsOutcome outcome = simulate_ps(simulation_of(Rule::kKAsync, p, k, "exp:1s"));
    double n = static_cast<double>(outcome.gradients), q = double(k) / p;
    for (size_t s = 0; s < 8; ++s) {
      double exact = q * std::pow(1 - q, s);
      EXPECT_NEAR(static_cast<double>(outcome.staleness.at(s)) / n, exact, 5 * std::sqrt(exact / n))
          << p << k << s;
    }
  }
}

TEST(PsSimulation, FreshGradientsOfKBatchAsync) {
  for (auto [p, k] : {std::pair{4, 2}, {4, 4}, {8, 4}}) {
    PsOutcome outcome = simulate_ps(simulation_of(Rule::kKBatchAsync, p, k, "exp:1s"));
    double stale = 0;
    for (int r = 1; r <= k; ++r) stale += std::pow(1 - 1.0 / p, r) / k;
    EXPECT_NEAR(outcome.fresh(), 1 - stale, 5 / (2 * std::sqrt(static_cast<double>(outcome.gradients))));
  }
}

// The second moments of the stationary iterates. w^2 is correlated over about 1/(2 x 0.1) updates either way,
// so that the mean of n of them has a relative error of sqrt(2 x 10 / n): 0.9 %.
TEST(PsSimulation, QuadraticSettlesAtTheExactFloor) {
  struct {
    Rule rule;
    int64_t k;
    double floor;
  } rows[] = {{Rule::kKSync, 1, 0.026315789},        {Rule::kKSync, 4, 0.0065789474},
              {Rule::kAsync, 0, 0.044554455},        {Rule::kKAsync, 4, 0.0072049405},
              {Rule::kKBatchAsync, 4, 0.0077132678}, {Rule::kSync, 0, 0.1 / (2 * 8 * 1.9)}};
  for (const auto& row : rows) {
    PsSimulation simulation = simulation_of(row.rule, 8, row.k, "exp:1s", 250'000);
    simulation.objective = Quadratic{};
    EXPECT_NEAR(*simulate_ps(simulation).loss_floor / row.floor, 1, 5 * 0.009)
        << plan::to_string(row.rule) << row.k;
  }
}

TEST(PsSimulation, DegenerateCasesGiveTheSameNumbers) {
  auto run = [](Rule rule, int64_t k, int64_t delay) {
    PsSimulation simulation = simulation_of(rule, 8, k, "pareto:1ms,3", 5'000);
    simulation.policy.max_delay = delay;
    simulation.objective = Quadratic{};
    return simulate_ps(simulation);
  };
  auto same = [](const PsOutcome& a, const PsOutcome& b) {
    EXPECT_EQ(a.seconds, b.seconds);
    EXPECT_EQ(a.staleness, b.staleness);
    EXPECT_NEAR(a.idle_fraction, b.idle_fraction, 1e-9) << "sums in another order";
    EXPECT_EQ(a.cancelled, b.cancelled);
    EXPECT_EQ(a.pulls, b.pulls);
    EXPECT_EQ(a.loss_floor, b.loss_floor);
  };
  PsOutcome sync = run(Rule::kSync, 0, 0), async = run(Rule::kAsync, 0, 0);
  same(run(Rule::kKSync, 8, 0), sync);
  same(run(Rule::kKAsync, 8, 0), sync);
  same(run(Rule::kKAsync, 1, 0), async);
  same(run(Rule::kKBatchAsync, 1, 0), async);
  same(run(Rule::kBoundedDelay, 0, plan::PolicyOptions::kUnbounded), async);
  EXPECT_GT(run(Rule::kKBatchAsync, 8, 0).mean_staleness, 0.5) << "not synchronous";
}

TEST(PsSimulation, NoDelayIsSyncWithAnUpdateForEachGradient) {
  PsSimulation sync = simulation_of(Rule::kSync, 8, 0, "exp:1s", 20'000);
  PsSimulation none = simulation_of(Rule::kBoundedDelay, 8, 0, "exp:1s", 160'000);
  sync.warm_up = 1000;
  none.warm_up = 8000;  // the same moment
  PsOutcome a = simulate_ps(sync), b = simulate_ps(none);
  EXPECT_EQ(a.seconds, b.seconds);
  EXPECT_EQ(a.gradients, b.gradients);
  EXPECT_EQ(a.pulls, b.pulls);
  EXPECT_NEAR(a.idle_fraction, b.idle_fraction, 1e-9);
  EXPECT_EQ(b.mean_staleness, 3.5) << "0 to 7 updates of the same round";
}

TEST(PsSimulation, MoreDelayMeansLessIdleness) {
  double idle = 1, seconds = 1e9;
  for (int64_t delay : {0, 1, 2, 4, 8, 16}) {
    PsSimulation simulation = simulation_of(Rule::kBoundedDelay, 8, 0, "exp:1s", 50'000);
    simulation.policy.max_delay = delay;
    PsOutcome outcome = simulate_ps(simulation);
    EXPECT_LT(outcome.idle_fraction, idle);
    EXPECT_LT(outcome.seconds_per_update(), seconds);
    // Every minibatch takes 1 s on average: what is not idle is work.
    EXPECT_NEAR(outcome.seconds_per_update() * 8 * (1 - outcome.idle_fraction), 1, five_errors(50'000));
    idle = outcome.idle_fraction;
    seconds = outcome.seconds_per_update();
  }
  EXPECT_LT(idle, 0.1);
}

// Until the loss stays below a thousandth of that of the start, means over some seeds.
struct ToTarget {
  double updates = 0;
  double seconds = 0;
};

// Each gradient is a step of the same length, whatever the delay.
ToTarget to_target(int64_t delay) {
  constexpr int kSeeds = 60, kWorkers = 8;
  ToTarget mean;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    PsSimulation simulation = simulation_of(Rule::kSsp, kWorkers, 0, "exp:1s", 600);
    simulation.policy.max_delay = delay;
    simulation.objective = Quadratic{/*noise=*/0, /*step=*/0.75 / kWorkers};
    simulation.start = 1;
    simulation.warm_up = 0;
    simulation.seed = seed;
    ToTarget one;
    double updates = 0;
    simulation.on_update = [&](double seconds, double loss) -> int64_t {
      ++updates;
      if (loss > 0.5e-3) one = {updates, seconds};
      return 0;
    };
    simulate_ps(simulation);
    mean.updates += one.updates / kSeeds;
    mean.seconds += one.seconds / kSeeds;
  }
  return mean;
}

// The tradeoff of the parameter server's paper: with stale gradients more updates are needed, which come
// faster.
TEST(PsSimulation, MoreDelayNeedsMoreUpdatesAndTheBestTimeLiesInside) {
  std::vector<ToTarget> sweep;
  for (int64_t delay : {0, 1, 2, 4, 8}) sweep.push_back(to_target(delay));
  for (size_t i = 1; i < sweep.size(); ++i) EXPECT_GT(sweep[i].updates, sweep[i - 1].updates) << i;
  auto sooner = [](const ToTarget& a, const ToTarget& b) { return a.seconds < b.seconds; };
  const auto best = std::min_element(sweep.begin(), sweep.end(), sooner);
  EXPECT_LT(best->seconds, 0.95 * sweep.front().seconds);
  EXPECT_LT(best->seconds, 0.95 * sweep.back().seconds);
}

TEST(PsSimulation, CountsBytes) {
  auto bytes = [](Rule rule, int64_t k) {
    PsSimulation simulation = simulation_of(rule, 8, k, "exp:1s", 1'000);
    simulation.bytes = 10;
    return simulate_ps(simulation).bytes;
  };
  EXPECT_EQ(bytes(Rule::kSync, 0), 1'000 * (8 + 8) * 10);
  EXPECT_EQ(bytes(Rule::kKSync, 3), 1'000 * (3 + 8) * 10);
  EXPECT_EQ(bytes(Rule::kKBatchSync, 3), 1'000 * (3 + 8) * 10) << "the early hold the version already";
  EXPECT_EQ(bytes(Rule::kAsync, 0), 1'000 * (1 + 1) * 10);
}

TEST(PsSimulation, OneSlowWorkerHoldsUpSyncAlone) {
  auto run = [](Rule rule) {
    PsSimulation simulation = simulation_of(rule, 4, 4, "const:4x", 4'000);
    simulation.compute = 1;
    simulation.slow = {false, false, true, false};
    return simulate_ps(simulation).seconds_per_update();
  };
  EXPECT_DOUBLE_EQ(run(Rule::kSync), 4);
  EXPECT_NEAR(run(Rule::kKBatchAsync), 4 / 3.25, 1e-3) << "the rates add up: 3 + 1/4";
}

// Updates take 4 s with the slow worker and 1 s without it.
TEST(PsSimulation, SyncGoesOnWithoutALostWorkerAndCountsItAgainWhenItIsBack) {
  PsSimulation simulation = simulation_of(Rule::kSync, 4, 0, "const:4x", 600);
  simulation.compute = 1;
  simulation.warm_up = 0;
  simulation.slow = {false, false, true, false};
  simulation.absences = {{2, 400.5, 800.5}};
  PsOutcome outcome = simulate_ps(simulation);
  EXPECT_DOUBLE_EQ(outcome.seconds, 100 * 4 + 400 + 4.5 + 99 * 4);
  EXPECT_EQ(outcome.gradients, 100 * 4 + 400 * 3 + 100 * 4);
}

TEST(PsSimulation, EveryRuleGoesOnWithAWorkerThatIsBack) {
  for (const std::string& name : plan::rule_names()) {
    Rule rule = plan::parse_rule(name);
    PsSimulation whole = simulation_of(rule, 4, 2, "exp:1s", 20'000);
    whole.policy.max_delay = 1;
    PsSimulation away = whole;
    away.absences = {{1, 0.5, 50.5}, {3, 20.25, 60.25}, {1, 70, 80}};
    PsOutcome a = simulate_ps(whole), b = simulate_ps(away);
    EXPECT_NEAR(b.seconds_per_update() / a.seconds_per_update(), 1, 0.05) << name << ": all of it is warm-up";
    EXPECT_EQ(a.gradients, b.gradients) << name;
    EXPECT_NEAR(b.mean_staleness, a.mean_staleness, 0.05) << name;
  }
}

TEST(PsSimulation, TransfersShareTheLinksOfWorkersAndServers) {
  // 8 workers push and pull 1000 bytes at once: limited by 2 servers, then by their own links.
  for (auto [servers, seconds] : {std::pair{2, 4.0}, {8, 1.0}, {100, 1.0}}) {
    PsSimulation simulation = simulation_of(Rule::kSync, 8, 0, "none", 50);
    simulation.compute = 3;
    simulation.bytes = 1000;
    simulation.bandwidth = 1000;
    simulation.servers = servers;
    PsOutcome outcome = simulate_ps(simulation);
    EXPECT_NEAR(outcome.seconds_per_update(), 3 + 2 * seconds, 1e-9) << servers;
    EXPECT_EQ(outcome.bytes, 50 * 16 * 1000);
  }
}

// Gradients per second of a closed queueing network: workers think for a second, then share two links, each
// of which takes `transfer` seconds alone (mean value analysis, exact for shared processors).
double gradients_per_second(int workers, double transfer) {
  double queue = 0, rate = 0;
  for (int n = 1; n <= workers; ++n) {
    const double response = transfer * (1 + queue);
    rate = n / (1 + 2 * response);
    queue = rate * response;
  }
  return rate;
}

TEST(PsSimulation, AsyncWorkersOverlapTransfersUntilTheServersAreFull) {
  PsSimulation simulation = simulation_of(Rule::kAsync, 16, 0, "exp:1s", 20'000);
  simulation.bytes = 1000;
  simulation.bandwidth = 4000;
  const double expected = gradients_per_second(16, 0.25);
  EXPECT_NEAR(1 / simulate_ps(simulation).seconds_per_update(), expected, 0.03 * expected);
  simulation.servers = 16;  // each worker is limited by its own link
  EXPECT_NEAR(1 / simulate_ps(simulation).seconds_per_update(), 16 / 1.5, 0.3);
}

TEST(PsSimulation, ALinkDelayHoldsGradientsUp) {
  PsSimulation simulation = simulation_of(Rule::kAsync, 4, 0, "none", 20'000);
  simulation.compute = 1;
  simulation.link = plan::parse_link_law("exp:1s");
  EXPECT_NEAR(simulate_ps(simulation).seconds_per_update(), 2.0 / 4, 0.02);
  EXPECT_THROW(plan::parse_link_law("const:2x"), ConfigError);
}

TEST(PsSimulation, EveryRuleRunsOverLinksWithWorkersThatComeAndGo) {
  for (const std::string& name : plan::rule_names()) {
    PsSimulation simulation = simulation_of(plan::parse_rule(name), 4, 2, "exp:1s", 3'000);
    simulation.policy.max_delay = 1;
    simulation.bytes = 1000;
    simulation.bandwidth = 2000;
    PsOutcome free_links = simulate_ps(simulation);
    simulation.bandwidth = 0;
    EXPECT_LT(simulate_ps(simulation).seconds, free_links.seconds) << name;
    simulation.bandwidth = 2000;
    simulation.absences = {{1, 0.5, 50.5}, {3, 20.25, 60.25}};
    EXPECT_EQ(simulate_ps(simulation).updates, 3'000) << name;
  }
}

TEST(PsSimulation, TheSameSeedGivesTheSameNumbers) {
  PsSimulation simulation = simulation_of(Rule::kKAsync, 8, 3, "exp:1s", 2'000);
  PsOutcome first = simulate_ps(simulation);
  EXPECT_EQ(first.seconds, simulate_ps(simulation).seconds);
  simulation.seed = 2;
  EXPECT_NE(first.seconds, simulate_ps(simulation).seconds);
}

TEST(PsSimulation, RefusesWhatCannotBe) {
  PsSimulation simulation = simulation_of(Rule::kAsync, 2, 0, "none");
  EXPECT_THAT([&] { simulate_ps(simulation); }, ThrowsMessage<ConfigError>(HasSubstr("take no time")));
  simulation.compute = 1;
  simulation.updates = 0;
  EXPECT_THAT([&] { simulate_ps(simulation); }, ThrowsMessage<ConfigError>(HasSubstr("updates = 0")));
  PsSimulation wild = simulation_of(Rule::kAsync, 16, 0, "exp:1s", 5'000);
  wild.objective = Quadratic{.noise = 1, .step = 1.9};
  EXPECT_THAT([&] { simulate_ps(wild); }, ThrowsMessage<ConfigError>(HasSubstr("diverge")));
}

TEST(FinishTimes, GivesTheFirstAndOfEqualsTheLowest) {
  FinishTimes times(5);
  times.set(3, 2.0);
  EXPECT_EQ(times.first(), 3);
  times.set(4, 1.0);
  times.set(1, 1.0);
  EXPECT_EQ(times.first(), 1);
  times.set(1, FinishTimes::kNever);
  EXPECT_EQ(times.first(), 4);
  times.set(4, 5.0);
  EXPECT_EQ(times.first(), 3);
  EXPECT_EQ(times.time(3), 2.0);
  FinishTimes one(1);
  one.set(0, 1.0);
  EXPECT_EQ(one.first(), 0);
}

// K-sync on F = |w|^2/2 settles at eta / (2K (2 - eta)) in every coordinate.
TEST(PsSimulation, TheFloorDoesNotDependOnTheNumberOfCoordinates) {
  PsSimulation s;
  s.policy = {plan::Rule::kKSync, 8, 4};
  s.law = plan::parse_delay_law("exp:1s");
  s.objective = plan::Quadratic{1, 0.1};
  s.dimensions = 16;
  s.updates = 20'000;
  EXPECT_NEAR(*simulate_ps(s).loss_floor / 0.006579, 1, 0.03);
}

TEST(PsSimulation, ObserversSeeEveryMinibatchOnceAndNoWorkerDoesTwoAtATime) {
  for (const char* rule : {"sync", "k_sync", "k_batch_sync", "async", "k_async", "k_batch_async"}) {
    PsSimulation s;
    s.policy = {plan::parse_rule(rule), 6, 3};
    s.law = plan::parse_delay_law("exp:1s");
    s.warm_up = 0;
    s.updates = 300;
    std::vector<double> free(6, 0);
    int64_t used = 0, cancelled = 0, stale = 0, updates = 0;
    s.on_minibatch = [&](const PsMinibatch& one) {
      EXPECT_GE(one.start, free[static_cast<size_t>(one.worker)] - 1e-9) << rule;
      free[static_cast<size_t>(one.worker)] = one.end;
      ++(one.cancelled ? cancelled : used);
      stale += one.staleness;
    };
    s.on_update = [&](double, double) {
      ++updates;
      return int64_t{0};
    };
    const PsOutcome outcome = simulate_ps(s);
    EXPECT_EQ(used, outcome.gradients) << rule;
    EXPECT_EQ(cancelled, outcome.cancelled) << rule;
    EXPECT_EQ(updates, outcome.updates) << rule;
    EXPECT_NEAR(static_cast<double>(stale), outcome.mean_staleness * static_cast<double>(used), 1e-6) << rule;
  }
}

TEST(PsSimulation, KMayChangeWhileItRuns) {
  PsSimulation s;
  s.policy = {plan::Rule::kKBatchAsync, 8, 1};
  s.law = plan::parse_delay_law("exp:1s");
  s.warm_up = 0;
  s.updates = 100;
  int64_t updates = 0;
  s.on_update = [&](double, double) { return int64_t{++updates == 50 ? 8 : 0}; };
  EXPECT_EQ(simulate_ps(s).gradients, 50 + 50 * 8);
}

TEST(PsSimulation, WeightingStaleGradientsLessKeepsALargeStepStable) {
  PsSimulation s;
  s.policy = {plan::Rule::kAsync, 16, 0};
  s.law = plan::parse_delay_law("exp:1s");
  s.objective = plan::Quadratic{1, 0.5};
  s.updates = 20'000;
  const auto floor = [&](bool inverse) {
    s.inverse_staleness = inverse;
    return *simulate_ps(s).loss_floor;
  };
  EXPECT_LT(floor(true), floor(false) / 2);
}

}  // namespace
}  // namespace yoke::sim
