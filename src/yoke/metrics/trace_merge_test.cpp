#include "yoke/metrics/trace_merge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/metrics/test_folder.h"
#include "yoke/metrics/trace.h"

namespace yoke::metrics {
namespace {

using ::testing::HasSubstr;

// Rank 1 is late in all reductions but the first.
void write_two_ranks(const std::filesystem::path& folder) {
  for (int64_t rank : {0, 1}) {
    Trace trace(folder / fmt::format("rank-{}.json", rank), {.rank = rank, .world_size = 2, .zero = 100});
    for (int step = 0; step < 4; ++step) {
      double late = rank == 1 && step > 0 ? 0.002 : rank == 0 && step == 0 ? 0.001 : 0;
      trace.add({"backward", "compute", "main", 100.0 + step, 0.5 + late});
      trace.add({"bucket 0", "comm", "communication", 100.5 + step + late, 0.01 - late});
    }
    trace.finish();
  }
}

TEST(TraceMerge, JoinsRanksAndNamesWhoWasWaitedFor) {
  std::filesystem::path folder = fresh_folder();
  write_two_ranks(folder);
  auto merged = merge_traces(folder);
  ASSERT_TRUE(merged);
  EXPECT_EQ(merged->collectives, 4);
  EXPECT_EQ(merged->straggler(), 1);
  EXPECT_THAT(merged->straggler_text(), HasSubstr("rank 1 was last in 75 % of 4 reductions, 1.50 ms behind"));
  auto json = nlohmann::json::parse(read_file(merged->path));
  int begins = 0, ends = 0;
  std::map<int64_t, double> started;
  for (const auto& event : json.at("traceEvents")) {
    if (event.at("ph") == "s") {
      ++begins;
      started[event.at("id")] = event.at("ts");
    }
    if (event.at("ph") == "f") {
      ++ends;
      EXPECT_GE(event.at("ts").get<double>(), started.at(event.at("id")));
    }
  }
  EXPECT_EQ(begins, 4);
  EXPECT_EQ(ends, 4);
}

TEST(TraceMerge, ARankThatAFileMakesUpHarmsNothing) {
  for (const char* pid : {"99", "-7", "1e300"}) {
    std::filesystem::path folder = fresh_folder();
    for (int rank : {0, 1})
      std::ofstream(folder / fmt::format("rank-{}.json", rank))
          << "{\n"
          << fmt::format(R"({{"cat":"comm","name":"bucket 0","ts":{},"dur":1,"tid":1,"pid":{}}})", 5 * rank,
                         pid)
          << "\n]}\n";
    auto merged = merge_traces(folder);
    ASSERT_TRUE(merged);
    EXPECT_EQ(merged->came_last[1], 1) << pid;
  }
}

TEST(TraceMerge, NeedsTwoRanksAndGoodFiles) {
  std::filesystem::path folder = fresh_folder();
  EXPECT_FALSE(merge_traces(folder));
  write_two_ranks(folder);
  std::ofstream(folder / "rank-1.json", std::ios::app) << "nonsense\n";
  EXPECT_THROW(merge_traces(folder), ConfigError);
}

}  // namespace
}  // namespace yoke::metrics
