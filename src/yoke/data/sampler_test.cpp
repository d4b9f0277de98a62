#include "yoke/data/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

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
    const std::vector<int64_t> part = sampler.indices({epoch, b});
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
  EXPECT_THAT(sampler.indices({3, 1}), ElementsAre(2, 3));
}

TEST(Sampler, CutsTheSameGlobalBatchesForAnyNumberOfShards) {
  for (bool drop_last : {true, false}) {
    const Sampler whole(101, options(12, true, drop_last), 7);
    for (int64_t shards : {2, 3, 4}) {
      for (int64_t b = 0; b < whole.batches_per_epoch(); ++b) {
        std::vector<int64_t> joined;
        for (int64_t rank = 0; rank < shards; ++rank) {
          const Sampler part(101, options(12 / shards, true, drop_last), 7, {rank, shards});
          const std::vector<int64_t> indices = part.indices({2, b});
          joined.insert(joined.end(), indices.begin(), indices.end());
        }
        EXPECT_EQ(joined, whole.indices({2, b})) << shards << " shards, batch " << b;
      }
    }
  }
}

TEST(Sampler, SplitsTheLastBatchEvenly) {
  std::vector<size_t> sizes;  // 12 + 5 samples
  for (int64_t rank = 0; rank < 3; ++rank) {
    sizes.push_back(Sampler(17, options(4, true, false), 7, {rank, 3}).indices({0, 1}).size());
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

TEST(Sampler, RefusesALastBatchWithoutASampleForEveryReplica) {
  EXPECT_THAT(error_of(34, options(4, true, false), {0, 4}),
              AllOf(HasSubstr("34 samples in batches of 16 leave 2"), HasSubstr("data.limit = 32")));
  EXPECT_EQ(error_of(36, options(4, true, false), {0, 4}), "no error");
}

TEST(Sampler, UnequalPartsAreTheWholeBatch) {
  for (std::vector<double> shares : {std::vector<double>{8, 4}, {1, 1000}, {1000, 1}, {0.3, 0.7}}) {
    int64_t total = 0;
    double weights = 0;
    std::vector<int64_t> all;
    for (int64_t rank = 0; rank < 2; ++rank) {
      Sampler sampler(60, options(6, false), 1, {rank, 2});
      sampler.set_shares(shares);
      std::vector<int64_t> part = sampler.indices({0, 1});
      EXPECT_GE(part.size(), 1u);
      EXPECT_DOUBLE_EQ(sampler.weight({0, 1}), static_cast<double>(part.size()) / 6);
      weights += sampler.weight({0, 1});
      total += static_cast<int64_t>(part.size());
      all.insert(all.end(), part.begin(), part.end());
    }
    EXPECT_DOUBLE_EQ(weights, 2);
    EXPECT_EQ(total, 12);
    for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(all[static_cast<size_t>(i)], 12 + i);
  }
  Sampler sampler(60, options(6, false), 1, {0, 2});
  sampler.set_shares({8, 4});
  EXPECT_EQ(sampler.indices({0, 0}).size(), 8u);
}

}  // namespace
}  // namespace yoke::data
