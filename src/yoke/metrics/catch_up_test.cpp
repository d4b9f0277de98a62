#include "yoke/metrics/catch_up.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "yoke/metrics/jsonl.h"
#include "yoke/metrics/test_folder.h"

namespace yoke::metrics {
namespace {

using ::testing::ElementsAre;

std::vector<Record> records(std::vector<int64_t> steps, double loss = 1) {
  std::vector<Record> made;
  for (int64_t step : steps) made.push_back({.step = step, .loss = loss});
  return made;
}

std::vector<int64_t> steps_of(const std::vector<Record>& all) {
  std::vector<int64_t> steps;
  for (const Record& record : all) steps.push_back(record.step);
  return steps;
}

std::vector<int64_t> steps_after(const std::filesystem::path& path, std::vector<int64_t> recent,
                                 int64_t first_step) {
  CatchUp sinks(path, records(std::move(recent)));
  sinks.add(std::make_unique<JsonLines>(path));
  sinks.start({.first_step = first_step});
  return steps_of(read_records(path).records);
}

TEST(CatchUp, WritesWhatTheLastWriterTookAlong) {
  auto path = fresh_folder() / "metrics.jsonl";
  std::ofstream(path) << to_json({.step = 1}).dump() << "\n"
                      << to_json({.step = 2}).dump() << "\n{\"step\": 3, \"lo";
  EXPECT_THAT(steps_after(path, {2, 3, 4, 5}, 4), ElementsAre(1, 2, 3, 4));
}

TEST(CatchUp, WritesNothingThatIsThere) {
  auto path = fresh_folder() / "metrics.jsonl";
  std::ofstream(path) << to_json({.step = 4}).dump() << "\n";
  EXPECT_THAT(steps_after(path, {2, 3, 4}, 4), ElementsAre(4));
}

TEST(CatchUp, WritesNothingAtTheStartOfARun) {
  auto path = fresh_folder() / "metrics.jsonl";
  EXPECT_THAT(steps_after(path, {2, 3}, 0), ElementsAre());
  EXPECT_THAT(steps_after(path, {}, 0), ElementsAre());
}

TEST(MergeRecords, HasEachStepOnceInOrderAndTheLastOnes) {
  const std::vector<Record> merged = merge_records(records({1, 3, 4}, 5), records({2, 3, 5}, 6), 4);
  EXPECT_THAT(steps_of(merged), ElementsAre(2, 3, 4, 5));
  EXPECT_EQ(merged[1].loss, 5);
}

}  // namespace
}  // namespace yoke::metrics
