#include "yoke/data/distributed_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "yoke/base/error.h"

namespace yoke {
namespace {

// Batches of one pass.
std::vector<std::vector<size_t>> pass(DistributedSampler sampler, size_t batch_size) {
  std::vector<std::vector<size_t>> batches;
  sampler.reset();
  while (auto batch = sampler.next(batch_size)) batches.push_back(*batch);
  return batches;
}

TEST(DistributedSampler, DealsEverySampleOnceInTheSameNumberOfBatchesOnEveryRank) {
  for (int64_t ranks : {1, 2, 3, 5})
    for (size_t samples : {5, 17, 64, 97, 100}) {
      std::map<size_t, int> times;
      size_t batches = 0;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        auto own = pass(DistributedSampler(samples, {rank, ranks}, {.seed = 3}), 8);
        if (rank == 0) batches = own.size();
        EXPECT_EQ(own.size(), batches) << samples << " samples, rank " << rank << " of " << ranks;
        for (const auto& batch : own) {
          EXPECT_FALSE(batch.empty());
          EXPECT_LE(batch.size(), 9u);
          for (size_t sample : batch) ++times[sample];
        }
      }
      EXPECT_EQ(times.size(), samples);
      for (const auto& [sample, count] : times) EXPECT_EQ(count, 1) << sample;
    }
}

TEST(DistributedSampler, EpochsHaveOrdersOfTheirOwnThatComeBack) {
  DistributedSampler sampler(50, {0, 2}, {.seed = 1});
  auto first = pass(sampler, 5);
  EXPECT_EQ(pass(sampler, 5), first);
  DistributedSampler copy = sampler;  // as a loader holds it
  sampler.set_epoch(1);
  auto second = pass(copy, 5);
  EXPECT_NE(second, first);
  copy.set_epoch(0);
  EXPECT_EQ(pass(sampler, 5), first);
  EXPECT_EQ(pass(DistributedSampler(6, {1, 2}, {.shuffle = false}), 2),
            (std::vector<std::vector<size_t>>{{2, 3}, {5}}));
}

TEST(DistributedSampler, LeavesOutTheRestWhereAskedTo) {
  EXPECT_EQ(pass(DistributedSampler(23, {0, 2}, {.drop_last = true}), 5).size(), 2u);
}

TEST(DistributedSampler, StartsWhereItIsTold) {
  DistributedSampler sampler(43, {1, 2}, {.seed = 1});
  auto all = pass(sampler, 4);
  sampler.start_at(sampler.sample_after(0, 2, 4));
  auto rest = pass(sampler, 4);
  EXPECT_EQ(rest, std::vector(all.begin() + 2, all.end()));
  EXPECT_EQ(pass(sampler, 4), all);  // once
  sampler.start_at(sampler.sample_after(0, static_cast<int64_t>(all.size()), 4));
  EXPECT_TRUE(pass(sampler, 4).empty());
  EXPECT_THROW(sampler.start_at(44), ConfigError);
  EXPECT_THROW(DistributedSampler(1, {0, 2}), ConfigError);
}

}  // namespace
}  // namespace yoke
