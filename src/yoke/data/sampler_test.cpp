#include "yoke/data/sampler.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>

#include "yoke/base/error.h"

namespace yoke::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

DataOptions options(int64_t batch_size, bool shuffle = true, bool drop_last = true) {
  DataOptions o;
  o.batch_size = batch_size;
  o.shuffle = shuffle;
  o.drop_last = drop_last;
  return o;
}

std::vector<int64_t> epoch_of(const Sampler& sampler, int64_t epoch) {
  std::vector<int64_t> all;
  for (int64_t b = 0; b < sampler.batches_per_epoch(); ++b) {
    const std::vector<int64_t> part = sampler.indices(epoch * sampler.batches_per_epoch() + b);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

std::string error_of(int64_t samples, const DataOptions& o, Shard shard) {
  try {
    Sampler(samples, o, 1, shard);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Sampler, GivesEachSampleOnceAnEpoch) {
  const Sampler sampler(103, options(10, true, false), 7);
  EXPECT_EQ(sampler.batches_per_epoch(), 11);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int64_t> all = epoch_of(sampler, epoch);
    std::sort(all.begin(), all.end());
    std::vector<int64_t> expected(103);
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(all, expected);
  }
}

TEST(Sampler, LeavesOutOnlyTheSmallerLastBatch) {
  const Sampler sampler(103, options(10), 7);
  EXPECT_EQ(sampler.batches_per_epoch(), 10);
  std::vector<int64_t> all = epoch_of(sampler, 0);
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all.size(), 100u);
  EXPECT_EQ(std::unique(all.begin(), all.end()), all.end());
}

TEST(Sampler, DrawsAnotherOrderEveryEpochAndForEverySeed) {
  const Sampler sampler(50, options(10), 7), again(50, options(10), 7), other(50, options(10), 8);
  const std::vector<int64_t> second = epoch_of(sampler, 1);
  EXPECT_NE(epoch_of(sampler, 0), second);
  EXPECT_EQ(epoch_of(again, 1), second);
  EXPECT_NE(epoch_of(other, 1), second);
}

TEST(Sampler, KeepsTheFilesOrderWithoutShuffle) {
  const Sampler sampler(5, options(2, false), 7);
  EXPECT_THAT(sampler.indices_at({3, 2}), ElementsAre(2, 3));
}

TEST(Sampler, CutsTheSameGlobalBatchesForAnyNumberOfShards) {
  for (bool drop_last : {true, false}) {
    const Sampler whole(101, options(12, true, drop_last), 7);
    for (int64_t shards : {2, 3, 4}) {
      for (int64_t b = 0; b < whole.batches_per_epoch(); ++b) {
        std::vector<int64_t> joined;
        for (int64_t rank = 0; rank < shards; ++rank) {
          const Sampler part(101, options(12 / shards, true, drop_last), 7, {rank, shards});
          const std::vector<int64_t> indices = part.indices_at({2, 12 * b});
          joined.insert(joined.end(), indices.begin(), indices.end());
        }
        EXPECT_EQ(joined, whole.indices_at({2, 12 * b})) << shards << " shards, batch " << b;
      }
    }
  }
}

TEST(Sampler, SplitsTheLastBatchEvenly) {
  std::vector<size_t> sizes;  // 12 + 5 samples
  for (int64_t rank = 0; rank < 3; ++rank) {
    sizes.push_back(Sampler(17, options(4, true, false), 7, {rank, 3}).indices(1).size());
  }
  EXPECT_THAT(sizes, ElementsAre(1, 2, 2));
}

TEST(Sampler, RefusesADataSetSmallerThanOneBatch) {
  EXPECT_THAT(error_of(60, options(16), {0, 4}),
              AllOf(HasSubstr("data.batch_size = 16 with 4 replicas needs 64 samples"), HasSubstr("has 60"),
                    HasSubstr("at most 15")));
  EXPECT_THAT(error_of(10, options(INT64_MAX), {1, 4}), HasSubstr("the data set has 10"));
  EXPECT_EQ(error_of(60, options(16, true, false), {0, 4}), "no error");
  EXPECT_EQ(error_of(60, options(INT64_MAX, true, false), {0, 4}), "no error");
  EXPECT_THAT(error_of(0, options(1), {0, 1}), HasSubstr("no samples"));
  EXPECT_THAT(error_of(8, options(0), {0, 1}), HasSubstr("data.batch_size = 0"));
}

// What each sample counts in the mean of a global batch, over all shards.
std::map<int64_t, double> weights_of_batch(int64_t samples, const DataOptions& o, int64_t shards, Position at,
                                           const std::vector<double>& shares = {}) {
  std::map<int64_t, double> weights;
  for (int64_t rank = 0; rank < shards; ++rank) {
    Sampler sampler(samples, o, 7, {rank, shards});
    sampler.set_shares(shares);
    const std::vector<int64_t> own = sampler.indices_at(at);
    for (int64_t index : own)
      weights[index] += sampler.weight_at(at) / static_cast<double>(own.size()) / static_cast<double>(shards);
  }
  return weights;
}

TEST(Sampler, EverySampleOfALastBatchCountsTheSameAlsoWhereShardsAreMore) {
  for (int64_t rest = 1; rest < 12; ++rest) {
    for (int64_t shards : {1, 2, 3, 4, 6}) {
      for (const auto& shares :
           {std::vector<double>{}, std::vector<double>(static_cast<size_t>(shards), 2.5)}) {
        auto weights =
            weights_of_batch(24 + rest, options(12 / shards, true, false), shards, {1, 24}, shares);
        ASSERT_EQ(static_cast<int64_t>(weights.size()), rest) << shards << " shards";
        for (const auto& [index, weight] : weights)
          EXPECT_NEAR(weight, 1.0 / static_cast<double>(rest), 1e-12) << rest << " on " << shards;
      }
    }
  }
}

// Takes batches in several worlds one after the other, each from the position where the one before stopped.
struct Stay {
  int64_t shards = 1, batch_size = 1, batches = 0;
};

std::vector<int64_t> travel(int64_t samples, bool drop_last, const std::vector<Stay>& stays, Position& at) {
  std::vector<int64_t> seen;
  for (const Stay& stay : stays) {
    const DataOptions o = options(stay.batch_size, true, drop_last);
    const Sampler first(samples, o, 7, {0, stay.shards});
    at = first.after(at, 0);
    for (int64_t b = 0; b < stay.batches; ++b, at = first.after(at, 1))
      for (const auto& [index, weight] : weights_of_batch(samples, o, stay.shards, at)) seen.push_back(index);
  }
  return seen;
}

TEST(Sampler, GivesEachSampleOnceAnEpochWhateverTheWorldBeforeAndAfter) {
  const std::vector<std::pair<int64_t, int64_t>> worlds = {{1, 1},  {1, 6}, {1, 7},  {2, 3},
                                                           {2, 33}, {3, 2}, {3, 22}, {4, 5}};
  constexpr int64_t kSamples = 197;
  for (bool drop_last : {true, false}) {
    for (const auto& [shards, size] : worlds) {
      for (const auto& [other_shards, other_size] : worlds) {
        for (int64_t batches : {0, 1, 2}) {
          std::string what = fmt::format("{} x {}, then {} x {} after {} batches, drop_last {}", shards, size,
                                         other_shards, other_size, batches, drop_last);
          Position at;
          std::vector<int64_t> seen = travel(kSamples, drop_last, {{shards, size, batches}}, at);
          if (at.epoch > 0) continue;  // that was all of it
          const Sampler then(kSamples, options(other_size, true, drop_last), 7, {0, other_shards});
          const int64_t left = then.batches_from(at.sample);
          auto more = travel(kSamples, drop_last, {{other_shards, other_size, left}}, at);
          seen.insert(seen.end(), more.begin(), more.end());
          const auto count = static_cast<int64_t>(seen.size());
          EXPECT_EQ(at, (Position{1, 0})) << what;
          EXPECT_EQ(std::set<int64_t>(seen.begin(), seen.end()).size(), seen.size()) << what;
          if (drop_last)
            EXPECT_GT(count, kSamples - other_shards * other_size) << what;
          else
            EXPECT_EQ(count, kSamples) << what;
        }
      }
    }
  }
}

TEST(Sampler, TheSameGlobalBatchesFollowInAnotherWorld) {
  Position two, one, three;
  travel(500, true, {{2, 33, 5}}, two);
  one = three = two;
  const auto expected = travel(500, true, {{2, 33, 4}}, two);
  EXPECT_EQ(travel(500, true, {{1, 66, 4}}, one), expected);
  EXPECT_EQ(travel(500, true, {{3, 22, 4}}, three), expected);
  EXPECT_EQ(one, two);
  EXPECT_EQ(three, two);
}

// As an elastic job does: 6, 4, 5, then 1 shards, with 36 samples in every global batch.
TEST(Sampler, AGivenGlobalBatchIsDividedAmongAnyNumberOfShards) {
  const int64_t sizes[] = {6, 4, 5, 1};
  std::map<int64_t, int> used;
  Position at;
  for (int batch = 0; at.epoch == 0; ++batch) {
    const int64_t shards = sizes[std::min(batch / 3, 3)];
    double weight = 0;
    int64_t samples = 0;
    Position next;
    for (int64_t rank = 0; rank < shards; ++rank) {
      Sampler sampler(500, options(6, true, false), 7, Shard{rank, shards, 36});
      for (int64_t index : sampler.indices_at(at)) ++used[index], ++samples;
      weight += sampler.weight_at(at) / static_cast<double>(shards);
      next = sampler.after(at, 1);
    }
    EXPECT_EQ(samples, std::min<int64_t>(36, 500 - at.sample));
    EXPECT_NEAR(weight, 1, 1e-12);
    at = next;
  }
  EXPECT_EQ(used.size(), 500u);
  for (const auto& [index, times] : used) EXPECT_EQ(times, 1) << index;
}

TEST(Sampler, ARestThatIsLeftOutEndsTheEpoch) {
  const Sampler sampler(100, options(32), 7);
  EXPECT_EQ(sampler.after({4, 68}, 0), (Position{4, 68}));
  EXPECT_EQ(sampler.after({4, 69}, 0), (Position{5, 0}));
  EXPECT_EQ(sampler.after({4, 100}, 0), (Position{5, 0}));
  EXPECT_EQ(sampler.after({0, 20}, 2 + 3 + 1), (Position{2, 32}));
  const Sampler all(100, options(32, true, false), 7);
  EXPECT_EQ(all.after({4, 69}, 0), (Position{4, 69}));
  EXPECT_EQ(all.after({4, 69}, 1), (Position{5, 0}));
}

// It reads something, which counts for nothing; the others read what they would without it.
TEST(Sampler, AShardWithoutAShareCountsForNothing) {
  const DataOptions given = options(4, /*shuffle=*/true, /*drop_last=*/false);
  for (int64_t samples : {32, 25, 9}) {  // the last batch may have fewer samples than shards
    for (int64_t rank = 0; rank < 3; ++rank) {
      Sampler own(samples, given, 1, {rank, 3, 8});
      own.set_shares({1, 0, 1});
      Position at = own.after({}, 0);
      for (int64_t batch = 0; batch < own.batches_per_epoch(); ++batch, at = own.after(at, 1)) {
        if (rank == 1) {
          EXPECT_EQ(own.weight_at(at), 0);
          EXPECT_FALSE(own.indices_at(at).empty());
          continue;
        }
        Sampler alone(samples, given, 1, {rank / 2, 2, 8});
        EXPECT_EQ(own.indices_at(at), alone.indices_at(at)) << samples << " samples, batch " << batch;
        EXPECT_DOUBLE_EQ(own.weight_at(at), alone.weight_at(at) * 3 / 2);
      }
    }
  }
}

TEST(Sampler, UnequalPartsAreTheWholeBatch) {
  for (std::vector<double> shares : {std::vector<double>{8, 4}, {1, 1000}, {1000, 1}, {0.3, 0.7}}) {
    int64_t total = 0;
    double weights = 0;
    std::vector<int64_t> all;
    for (int64_t rank = 0; rank < 2; ++rank) {
      Sampler sampler(60, options(6, false), 1, {rank, 2});
      sampler.set_shares(shares);
      std::vector<int64_t> part = sampler.indices_at({0, 12});
      EXPECT_GE(part.size(), 1u);
      EXPECT_DOUBLE_EQ(sampler.weight_at({0, 12}), static_cast<double>(part.size()) / 6);
      weights += sampler.weight_at({0, 12});
      total += static_cast<int64_t>(part.size());
      all.insert(all.end(), part.begin(), part.end());
    }
    EXPECT_DOUBLE_EQ(weights, 2);
    EXPECT_EQ(total, 12);
    for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(all[static_cast<size_t>(i)], 12 + i);
  }
  Sampler sampler(60, options(6, false), 1, {0, 2});
  sampler.set_shares({8, 4});
  EXPECT_EQ(sampler.indices(0).size(), 8u);
}

}  // namespace
}  // namespace yoke::data
