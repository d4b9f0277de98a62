#include "yoke/ps/sparse/rules.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <random>

#include "yoke/base/error.h"
#include "yoke/ps/sparse/table.h"

namespace yoke::ps::sparse {
namespace {

using ::testing::HasSubstr;

// A row of the reference: values and state of one key of width 1.
struct Weight {
  double w = 0, n = 0, z = 0;
};

double sign(double x) {
  return x > 0 ? 1 : x < 0 ? -1 : 0;
}

// As published: McMahan et al., "Ad Click Prediction: a View from the Trenches", algorithm 1, with the weight
// computed when it is used.
void published_ftrl(Weight& one, double g, double alpha, double beta, double l1, double l2) {
  const double w =
      std::abs(one.z) <= l1 ? 0 : -1 / ((beta + std::sqrt(one.n)) / alpha + l2) * (one.z - sign(one.z) * l1);
  const double sigma = (std::sqrt(one.n + g * g) - std::sqrt(one.n)) / alpha;
  one.z += g - sigma * w;
  one.n += g * g;
  one.w =
      std::abs(one.z) <= l1 ? 0 : -1 / ((beta + std::sqrt(one.n)) / alpha + l2) * (one.z - sign(one.z) * l1);
}

// Twenty updates of random subsets of 40 keys, by the rule and by `reference`.
void compare(const RuleOptions& options, const RuleStep& step,
             const std::function<void(Weight&, double g)>& reference) {
  Table table({.width = 1, .type = DataType::kFloat64}, make_rule(options));
  std::map<Key, Weight> expected;
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  for (int update = 0; update < 20; ++update) {
    std::vector<Key> keys;
    std::vector<double> gradient;
    for (Key key = 0; key < 40; ++key) {
      if (random() % 2 != 0) continue;
      keys.push_back(key * 1'000'003);
      gradient.push_back(normal(random));
      reference(expected[keys.back()], step.weight * gradient.back());
    }
    table.apply(step, keys, reinterpret_cast<const std::byte*>(gradient.data()));
  }
  for (const auto& [key, weight] : expected) {
    double seen = 0;
    table.read(std::span(&key, 1), reinterpret_cast<std::byte*>(&seen));
    EXPECT_NEAR(seen, weight.w, 1e-12) << options.name << ", key " << key;
  }
  EXPECT_EQ(table.rows(), expected.size());
}

TEST(SparseRules, Sgd) {
  compare({.name = "sgd"}, {0.1, 0.5}, [](Weight& one, double g) { one.w -= 0.1 * g; });
}

TEST(SparseRules, Adagrad) {
  compare({.name = "adagrad"}, {0.1, 0.5}, [](Weight& one, double g) {
    one.n += g * g;
    one.w -= 0.1 * g / (std::sqrt(one.n) + 1e-10);
  });
}

TEST(SparseRules, FtrlIsThePublishedFormula) {
  compare({.name = "ftrl", .beta = 0.7, .l1 = 0.3, .l2 = 0.2}, {0.1, 0.5},
          [](Weight& one, double g) { published_ftrl(one, g, 0.1, 0.7, 0.3, 0.2); });
}

TEST(SparseRules, FtrlWithoutRegularisersIsAdagradsRate) {
  compare({.name = "ftrl", .beta = 0}, {0.1, 1},
          [](Weight& one, double g) { published_ftrl(one, g, 0.1, 0, 0, 0); });
}

TEST(SparseRules, ProximalShrinksAndScales) {
  compare({.name = "proximal", .l1 = 0.2, .l2 = 0.5}, {0.1, 0.5}, [](Weight& one, double g) {
    const double v = one.w - 0.1 * g;
    one.w = sign(v) * std::max(0.0, std::abs(v) - 0.1 * 0.2) / (1 + 0.1 * 0.5);
  });
}

constexpr Key kRowsOfRun = 40;

// Updates of a run: random rows have a gradient, all have the penalty, at a rate of its own.
struct PenalisedRun {
  explicit PenalisedRun(double one, double two) : l1(one), l2(two) {}
  double rate(int update) const { return 0.1 + 0.05 * (update % 3); }
  RuleOptions rule() const { return {.name = "proximal", .l1 = l1, .l2 = l2}; }
  void update(Table& table, int number) {
    std::mt19937 random(static_cast<unsigned>(number));
    std::vector<Key> keys;
    std::vector<double> gradient(static_cast<size_t>(kRowsOfRun), 0), pushed;
    for (Key key = 0; key < kRowsOfRun; ++key) {
      if (random() % 8 != 0) continue;
      keys.push_back(key);
      pushed.push_back(std::normal_distribution<double>()(random));
      gradient[static_cast<size_t>(key)] = pushed.back();
    }
    table.update({rate(number), 0.5}, keys, reinterpret_cast<const std::byte*>(pushed.data()));
    for (size_t i = 0; i < weights.size(); ++i) {
      const double lr = rate(number), v = weights[i] - lr * 0.5 * gradient[i];
      weights[i] = sign(v) * std::max(0.0, std::abs(v) - lr * l1) / (1 + lr * l2);
    }
  }
  void expect_in(const Table& table) const {
    std::vector<Key> keys(weights.size());
    std::iota(keys.begin(), keys.end(), Key{0});
    std::vector<double> seen(keys.size());
    table.read(keys, reinterpret_cast<std::byte*>(seen.data()));
    EXPECT_THAT(seen, ::testing::Pointwise(::testing::DoubleNear(1e-12), weights));
  }
  double l1, l2;
  std::vector<double> weights = std::vector<double>(static_cast<size_t>(kRowsOfRun), 0);
};

Table table_of(const PenalisedRun& run) {
  return Table({.width = 1, .type = DataType::kFloat64}, make_rule(run.rule()));
}

TEST(SparseRules, PenaltiesThatARowHasMissedAreTakenOffItLater) {
  for (const auto& [l1, l2] : {std::pair(0.1, 0.0), std::pair(0.0, 0.3), std::pair(0.1, 0.3)}) {
    PenalisedRun run(l1, l2);
    Table table = table_of(run);
    for (int update = 0; update < 200; ++update) {
      run.update(table, update);
      if (update % 7 == 0) run.expect_in(table);
    }
    run.expect_in(table);
    EXPECT_LT(table.rows(), kRowsOfRun + 1u);
  }
}

TEST(SparseRules, SnapshotsHaveAllPenaltiesUpToTheirUpdate) {
  PenalisedRun run(0.05, 0.2);
  Table table = table_of(run);
  for (int update = 0; update < 50; ++update) run.update(table, update);
  table.take_snapshot();
  const std::vector<double> then = run.weights;
  for (int update = 50; update < 60; ++update) run.update(table, update);
  for (int32_t flags : {int32_t{kFromSnapshot}, 0}) {
    FetchTableHead head;
    head.flags = flags;
    head.most = 1000;
    std::vector<std::byte> payload;
    const auto count = static_cast<size_t>(table.read_range(head, payload).keys);
    const auto* keys = reinterpret_cast<const Key*>(payload.data());
    const auto* values = reinterpret_cast<const double*>(keys + count);
    ASSERT_GT(count, 0u);
    for (size_t i = 0; i < count; ++i)
      EXPECT_NEAR(values[i], (flags != 0 ? then : run.weights)[static_cast<size_t>(keys[i])], 1e-12);
  }
}

TEST(SparseRules, ACopyOwesTheSamePenaltiesToTheBit) {
  PenalisedRun run(0.05, 0.2);
  Table table = table_of(run), copy = table_of(run);
  for (int update = 0; update < 30; ++update) run.update(table, update);
  copy.begin_filling(table.mark());
  PenalisedRun same = run;
  run.update(table, 30);
  same.update(copy, 30);
  for (uint32_t row = 0; row < table.rows(); row += 4) copy.fill(table.piece(row, 4));
  copy.filled();
  run.update(table, 31);
  same.update(copy, 31);
  std::vector<Key> keys(run.weights.size());
  std::iota(keys.begin(), keys.end(), Key{0});
  std::vector<double> ours(keys.size()), theirs(keys.size());
  table.read(keys, reinterpret_cast<std::byte*>(ours.data()));
  copy.read(keys, reinterpret_cast<std::byte*>(theirs.data()));
  EXPECT_EQ(ours, theirs);
  run.expect_in(copy);
  Table::Piece unmarked = table.piece(0, 1);
  unmarked.marks.clear();
  EXPECT_THROW(table_of(run).fill(unmarked), CommError);
}

TEST(SparseRules, APushOutsideOfARunLeavesOtherRowsAlone) {
  Table table({.width = 1, .type = DataType::kFloat64}, make_rule({.name = "proximal", .l1 = 0.1}));
  const std::vector<Key> first = {1}, second = {2}, both = {1, 2};
  const double g = -1;
  for (const auto& keys : {first, second})
    table.apply({0.5, 1}, keys, reinterpret_cast<const std::byte*>(&g));
  std::vector<double> seen(2);
  table.read(both, reinterpret_cast<std::byte*>(seen.data()));
  EXPECT_THAT(seen, ::testing::Each(::testing::DoubleEq(0.45)));
}

TEST(SparseRules, FunctionsOfTheProgramRunOnAggregates) {
  // Counts how often a key was updated, beside its sum.
  auto rule = make_function(
      [](const RuleStep&, const RowBlock& rows) {
        for (int64_t i = 0; i < rows.count(); ++i) {
          static_cast<float*>(rows.values)[i] += static_cast<const float*>(rows.gradient)[i];
          static_cast<float*>(rows.state[0])[i] += 1;
        }
      },
      1);
  Table table({.width = 2}, rule);
  const std::vector<Key> keys = {4, 8};
  const std::vector<float> gradient = {1, 2, 3, 4};
  for (int i = 0; i < 3; ++i) table.apply({}, keys, reinterpret_cast<const std::byte*>(gradient.data()));
  FetchTableHead head;
  head.array = 1;
  head.most = 10;
  std::vector<std::byte> payload;
  EXPECT_EQ(table.read_range(head, payload).keys, 2);
  float counts[4];
  std::memcpy(counts, payload.data() + 2 * sizeof(Key), sizeof(counts));
  EXPECT_THAT(counts, ::testing::Each(3));
}

TEST(SparseRules, RefuseWhatIsOutOfRange) {
  EXPECT_THROW(make_rule({.name = "adam"}), ConfigError);
  EXPECT_THROW(make_rule({.name = "ftrl", .l1 = -1}), ConfigError);
  EXPECT_THROW(make_rule({.name = "sgd", .lr = 0}), ConfigError);
  EXPECT_THROW(make_function({}, 0), ConfigError);
  EXPECT_THROW(make_function([](const RuleStep&, const RowBlock&) {}, 3), ConfigError);
}

}  // namespace
}  // namespace yoke::ps::sparse
