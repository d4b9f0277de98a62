#include "yoke/ps/blocks/solver.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <map>
#include <numeric>

#include "yoke/base/error.h"
#include "yoke/base/random.h"
#include "yoke/ps/blocks/experiment.h"

namespace yoke::ps::blocks {
namespace {

GeneratorOptions small_data() {
  return {.examples = 400, .keys = 200, .per_example = 8, .exponent = 1.1, .informative = 30, .seed = 3};
}

// Cyclic coordinate descent with exact one-dimensional minima, on all examples: slow and simple.
struct Reference {
  std::vector<double> weights;
  double objective = 0;
};
Reference reference(const Examples& examples, Key keys, double l1) {
  Reference found{std::vector<double>(keys, 0), 0};
  std::vector<double> margins(examples.count(), 0);
  std::vector<std::vector<std::pair<size_t, double>>> columns(keys);
  for (size_t i = 0; i < examples.count(); ++i)
    for (size_t j = examples.offsets[i]; j < examples.offsets[i + 1]; ++j)
      columns[examples.keys[j]].emplace_back(i, examples.values[j] * static_cast<double>(examples.labels[i]));
  for (int pass = 0; pass < 3000; ++pass) {
    double most = 0;
    for (size_t k = 0; k < keys; ++k) {
      double g = 0, u = 1e-12;
      for (auto [i, x] : columns[k]) {
        g -= x / (1 + std::exp(margins[i]));
        u += x * x / 4;
      }
      const double v = found.weights[k] - g / u;
      const double next = std::copysign(std::max(0.0, std::abs(v) - l1 / u), v);
      const double change = next - found.weights[k];
      for (auto [i, x] : columns[k]) margins[i] += x * change;
      found.weights[k] = next;
      most = std::max(most, std::abs(change));
    }
    if (most < 1e-9) break;
  }
  for (double margin : margins) found.objective += std::log1p(std::exp(-margin));
  for (double weight : found.weights) found.objective += l1 * std::abs(weight);
  return found;
}

struct Shares {
  explicit Shares(int workers, int64_t blocks = 20) {
    const GeneratorOptions data = small_data();
    for (int w = 0; w < workers; ++w)
      all.emplace_back(generate(data, data.examples * w / workers, data.examples * (w + 1) / workers),
                       data.keys, blocks);
  }
  Experiment experiment(double l1) {
    Experiment made;
    for (LocalProblem& one : all) made.problems.push_back(&one);
    made.keys = small_data().keys;
    made.solver.l1 = l1;
    made.solver.passes = 150;
    made.solver.timeout = 120;
    return made;
  }
  std::vector<LocalProblem> all;
};

void expect_equal(const Outcome& outcome, const Reference& wanted) {
  EXPECT_NEAR(outcome.objective, wanted.objective, 1e-5 * wanted.objective);
  std::vector<double> weights(wanted.weights.size(), 0);
  for (size_t i = 0; i < outcome.support.size(); ++i) weights[outcome.support[i]] = outcome.weights[i];
  for (size_t k = 0; k < weights.size(); ++k) EXPECT_NEAR(weights[k], wanted.weights[k], 0.05) << k;
}

TEST(BlockSolver, FindsTheMinimumForAnyNumberOfWorkersAndServers) {
  const Reference wanted = reference(generate(small_data(), 0, 400), 200, 4);
  for (auto [workers, servers] : {std::pair{1, 1}, {3, 2}, {4, 3}}) {
    Shares shares(workers);
    Experiment experiment = shares.experiment(4);
    experiment.servers = servers;
    expect_equal(run(experiment), wanted);
  }
}

TEST(BlockSolver, FindsTheMinimumWithADelay) {
  const Reference wanted = reference(generate(small_data(), 0, 400), 200, 4);
  Shares shares(3);
  for (int64_t delay : {1, 4, 16}) {
    Experiment experiment = shares.experiment(4);
    experiment.solver.delay = delay;
    const Outcome outcome = run(experiment);
    expect_equal(outcome, wanted);
    for (const SolverReport& one : outcome.workers) EXPECT_LE(one.most_in_flight, delay + 1);
  }
}

TEST(BlockSolver, FiltersLeaveKeysOutAndNotTheMinimum) {
  Shares shares(2);
  Experiment experiment = shares.experiment(4);
  experiment.solver.passes = 200;
  experiment.solver.kkt = false;
  experiment.compress = false;
  const Outcome plain = run(experiment);
  experiment.solver.kkt = true;
  experiment.compress = true;
  const Outcome filtered = run(experiment);
  EXPECT_NEAR(filtered.objective, plain.objective, 1e-5 * plain.objective);
  EXPECT_EQ(plain.workers[0].keys_left_out, 0);
  EXPECT_GT(filtered.workers[0].keys_left_out * 2, filtered.workers[0].keys) << "most weights are 0";
  EXPECT_LT(filtered.traffic.sent + filtered.traffic.received,
            (plain.traffic.sent + plain.traffic.received) / 2);
}

TEST(BlockSolver, WithoutADelayEqualRunsAreEqual) {
  Shares shares(3);
  Experiment experiment = shares.experiment(4);
  experiment.solver.passes = 30;
  const Outcome first = run(experiment), second = run(experiment);
  EXPECT_EQ(first.support, second.support);
  EXPECT_EQ(first.weights, second.weights);
}

// What the solver does without a delay and filters, by one thread.
std::map<Key, double> one_thread(std::vector<LocalProblem>& shares, const SolverOptions& options) {
  const auto rule = proximal_step(options.l1, std::make_shared<std::atomic<double>>(0));
  std::map<Key, double> weights;
  std::vector<double> pairs;
  for (int64_t pass = 0; pass < options.passes; ++pass) {
    std::vector<int64_t> order(20);
    std::iota(order.begin(), order.end(), 0);
    Random random(derive_seed(options.seed, 0, static_cast<uint64_t>(pass)));
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    for (int64_t block : order) {
      std::map<Key, std::array<double, 2>> sums;
      for (LocalProblem& one : shares) {
        one.derivatives(block, pairs);
        for (size_t i = 0; i < one.keys(block).size(); ++i)
          for (size_t k = 0; k < 2; ++k) sums[one.keys(block)[i]][k] += pairs[2 * i + k];
      }
      for (auto& [key, sum] : sums)
        rule->apply({}, {.type = DataType::kFloat64,
                         .keys = std::span(&key, 1),
                         .gradient = sum.data(),
                         .values = &weights[key]});
      for (LocalProblem& one : shares) {
        std::vector<double> own;
        for (Key key : one.keys(block)) own.push_back(weights[key]);
        one.set_weights(block, own);
      }
    }
  }
  std::erase_if(weights, [](const auto& one) { return one.second == 0; });
  return weights;
}

TEST(BlockSolver, WithoutADelayItEqualsOneThreadBitByBit) {
  Shares parallel(3), alone(3);
  Experiment experiment = parallel.experiment(4);
  experiment.servers = 2;
  experiment.solver.passes = 20;
  experiment.solver.kkt = false;
  const Outcome outcome = run(experiment);
  std::map<Key, double> weights;
  for (size_t i = 0; i < outcome.support.size(); ++i) weights[outcome.support[i]] = outcome.weights[i];
  EXPECT_EQ(weights, one_thread(alone.all, experiment.solver));
}

TEST(BlockSolver, DerivativesAreThoseOfTheLoss) {
  const Examples examples = generate(small_data(), 0, 400);
  LocalProblem problem(examples, 200, 5);
  std::vector<double> pairs;
  for (int64_t block = 0; block < 5; ++block) {
    std::vector<double> weights(problem.keys(block).size());
    for (size_t i = 0; i < weights.size(); ++i) weights[i] = 0.1 * std::sin(static_cast<double>(i));
    problem.set_weights(block, weights);
  }
  problem.derivatives(2, pairs);
  std::vector<double> weights(problem.weights(2).begin(), problem.weights(2).end());
  const double before = problem.loss();
  for (size_t i = 0; i < weights.size(); ++i) {
    std::vector<double> moved = weights;
    moved[i] += 1e-5;
    problem.set_weights(2, moved);
    EXPECT_NEAR((problem.loss() - before) / 1e-5, pairs[2 * i], 1e-3);
    problem.set_weights(2, weights);
  }
  // The quadratic model bounds the loss for a step of the whole block.
  double model = before;
  std::vector<double> moved = weights;
  for (size_t i = 0; i < weights.size(); ++i) {
    const double step = -0.5 * pairs[2 * i] / std::max(1e-9, pairs[2 * i + 1]);
    moved[i] += step;
    model += pairs[2 * i] * step + pairs[2 * i + 1] * step * step / 2;
  }
  problem.set_weights(2, moved);
  EXPECT_LE(problem.loss(), model + 1e-9);
}

TEST(BlockSolver, ExamplesDependOnTheirNumberAlone) {
  const Examples all = generate(small_data(), 0, 400), part = generate(small_data(), 100, 200);
  ASSERT_EQ(part.count(), 100u);
  for (size_t i = 0; i < 100; ++i) {
    EXPECT_EQ(part.labels[i], all.labels[100 + i]);
    EXPECT_EQ(part.offsets[i + 1] - part.offsets[i], all.offsets[101 + i] - all.offsets[100 + i]);
  }
}

TEST(BlockSolver, BadNumbersAreRefused) {
  EXPECT_THROW(Shares(1, 0), ConfigError);
  EXPECT_THROW(Shares(1, 201), ConfigError);
  EXPECT_THROW(LocalProblem(generate(small_data(), 0, 400), 10, 2), ConfigError) << "larger keys";
  Shares shares(1);
  EXPECT_THROW(run(shares.experiment(-1)), ConfigError);
  EXPECT_THROW(run(Experiment{}), ConfigError);
  EXPECT_THROW(generate({.keys = 1}, 0, 1), ConfigError);
}

}  // namespace
}  // namespace yoke::ps::blocks
