#include "yoke/cluster/departures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "yoke/base/error.h"

namespace yoke::cluster {
namespace {

using testing::HasSubstr;

Wait wait_in(uint64_t group, int64_t number, std::vector<int> ranks) {
  return {group,
          "data",
          number,
          "all_reduce #6 'bucket 0' sum of fp32 [10]",
          "all_reduce 'bucket 0'",
          std::move(ranks),
          2};
}

TEST(Departures, OneThatNeverEnteredTheOperationIsAbsent) {
  Departures departures;
  departures.closed(0, 7, 3, 5);
  EXPECT_FALSE(departures.absent(wait_in(7, 5, {0, 1, 2}))) << "it has done its part";
  EXPECT_FALSE(departures.absent(wait_in(8, 6, {0, 1, 2}))) << "another group";
  auto absent = departures.absent(wait_in(7, 6, {0, 1, 2}));
  ASSERT_TRUE(absent);
  EXPECT_EQ(absent->rank, 0);
  EXPECT_EQ(absent->operations, 5);
  EXPECT_FALSE(absent->left);
}

TEST(Departures, OneThatHasLeftIsAbsentFromWhatItNeverJoined) {
  Departures departures;
  departures.closed(2, 7, 3, 9);
  departures.left(2);
  EXPECT_FALSE(departures.absent(wait_in(7, 9, {0, 1, 2})));
  EXPECT_TRUE(departures.absent(wait_in(7, 10, {0, 1, 2})));
  EXPECT_TRUE(departures.absent(wait_in(8, 1, {1, 2})));
  EXPECT_TRUE(departures.absent(wait_in(7, 0, {2}))) << "between two ranks";
  EXPECT_FALSE(departures.absent(wait_in(8, 1, {0, 1})));
  departures.came_back(2);
  EXPECT_FALSE(departures.absent(wait_in(8, 1, {1, 2})));
}

TEST(Departures, AGroupThatAllHaveClosedIsForgotten) {
  Departures departures;
  const std::string empty = departures.to_json().dump();
  for (uint64_t group = 1; group < 1000; ++group) {
    for (int rank = 0; rank < 3; ++rank) departures.closed(rank, group, 3, 5);
  }
  EXPECT_EQ(departures.to_json().dump(), empty);
}

TEST(Departures, SurviveTheWire) {
  Departures departures;
  departures.closed(1, 0xfedcba9876543210u, 2, 5);
  departures.left(1);
  Departures read = Departures::read(nlohmann::json::parse(departures.to_json().dump()));
  EXPECT_EQ(read.to_json(), departures.to_json());
  Wait wait = wait_in(0xfedcba9876543210u, 6, {0, 1});
  EXPECT_EQ(to_json(read_wait(to_json(wait), 2)), to_json(wait));
  EXPECT_THROW(read_wait(to_json(wait), 1), CommError) << "rank 1 of 1";
  for (const char* text : {"{}", R"({"left":[],"groups":[[1,2,3]]})", R"({"left":[],"groups":7})",
                           R"({"left":["x"],"groups":[]})", R"({"left":[],"groups":[[1,0,0,0]]})"})
    EXPECT_THROW(Departures::read(nlohmann::json::parse(text)), CommError) << text;
}

TEST(Departures, TheReportNamesBothAndTheRemedy) {
  FailureReport report =
      early_end({0, true, 5}, "rank 0 on node1 (pid 4711)", wait_in(7, 6, {0, 1}), "rank 1");
  EXPECT_EQ(report.what,
            "rank 0 on node1 (pid 4711) has exited normally after 5 operations of group 'data', but rank 1 "
            "waits for it in all_reduce #6 'bucket 0' sum of fp32 [10]");
  EXPECT_THAT(report.next, HasSubstr("DistributedDataParallel::join()"));
}

}  // namespace
}  // namespace yoke::cluster
