#include "yoke/parallel/placement/stage/layout.h"

#include <gtest/gtest.h>

#include "yoke/base/error.h"

namespace yoke::parallel {
namespace {

TEST(PipelineLayout, BalancesTheMostExpensiveStage) {
  using Ranges = std::vector<BlockRange>;
  EXPECT_EQ(balanced_stages({1, 1, 1, 1}, 2), (Ranges{{0, 2}, {2, 4}}));
  EXPECT_EQ(balanced_stages({1, 1, 1, 3}, 2), (Ranges{{0, 3}, {3, 4}}));
  EXPECT_EQ(balanced_stages({5, 1, 1}, 3), (Ranges{{0, 1}, {1, 2}, {2, 3}}));
  EXPECT_THROW(balanced_stages({1, 1}, 3), ConfigError);
}

TEST(PipelineLayout, ReadsStagesAndSaysWhatIsWrong) {
  EXPECT_EQ(parse_stages("0-3, 4-7", 8, 2), (std::vector<BlockRange>{{0, 4}, {4, 8}}));
  EXPECT_EQ(parse_stages("0,1-2", 3, 2), (std::vector<BlockRange>{{0, 1}, {1, 3}}));
  for (const char* text :
       {"", "0-3", "0-3,5-7", "0-3,3-7", "0-3,4-8", "0-3,4-6", "3-0,4-7", "a-b", "0-3,4-5,6-7"})
    EXPECT_THROW(parse_stages(text, 8, 2), ConfigError) << text;
}

TEST(PipelineLayout, PutsTheRanksOfAStageSideBySide) {
  PipelineLayout layout;
  layout.request.stages = 3;
  layout.copies = 2;
  EXPECT_EQ(layout.ranks(), 6);
  EXPECT_EQ(layout.place_of(5).stage, 2);
  EXPECT_EQ(layout.place_of(5).copy, 1);
  EXPECT_EQ(layout.rank_of(/*worker=*/1, /*copy=*/0), 2);
  layout.copies = 1;
  layout.request.replicas = {2, 1, 1};
  EXPECT_EQ(layout.ranks(), 4);
  EXPECT_EQ(layout.place_of(1).stage, 0);
  EXPECT_EQ(layout.place_of(1).replica, 1);
  EXPECT_EQ(layout.place_of(3).stage, 2);
}

TEST(PipelineLayout, RefusesMoreMicroBatchesThanSamples) {
  PipelineOptions options;
  options.microbatches = 9;
  EXPECT_THROW(make_layout(options, 2, 1, {1, 1}, /*samples=*/8), ConfigError);
  options.microbatches = 0;
  EXPECT_EQ(make_layout(options, 2, 1, {1, 1}, /*samples=*/5).request.microbatches, 5);
}

}  // namespace
}  // namespace yoke::parallel
