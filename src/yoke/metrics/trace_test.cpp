#include "yoke/metrics/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/metrics/test_folder.h"

namespace yoke::metrics {
namespace {

using nlohmann::json;

std::vector<json> events_of(const json& trace, const std::string& phase) {
  std::vector<json> found;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == phase) found.push_back(event);
  }
  return found;
}

TEST(Trace, WritesSpansWithRankLaneAndMicroseconds) {
  auto path = fresh_folder() / "trace" / "rank-3.json";
  Trace trace(path, {.rank = 3, .world_size = 4});
  double now = now_seconds();
  trace.add({"forward", "compute", "main", now, 0.25});
  trace.add({"read", "data", "loader", now + 1, 0.5});
  trace.finish();
  json file = json::parse(read_file(path));
  EXPECT_EQ(file["distributedInfo"], (json{{"rank", 3}, {"world_size", 4}}));
  auto spans = events_of(file, "X");
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0]["name"], "forward");
  EXPECT_EQ(spans[0]["cat"], "compute");
  EXPECT_EQ(spans[0]["pid"], 3);
  EXPECT_DOUBLE_EQ(spans[0]["dur"].get<double>(), 250000);
  EXPECT_NE(spans[0]["tid"], spans[1]["tid"]);
  EXPECT_NEAR(spans[1]["ts"].get<double>() - spans[0]["ts"].get<double>(), 1e6, 1);
}

TEST(Trace, NamesItsProcessAndLanes) {
  auto path = fresh_folder() / "trace.json";
  Trace trace(path, {.rank = 1, .world_size = 2});
  trace.add({"a", "b", "stream \"7\"\n", now_seconds(), 1});
  trace.finish();
  auto names = events_of(json::parse(read_file(path)), "M");
  EXPECT_EQ(names[0]["args"]["name"], "rank 1");
  EXPECT_EQ(names[1]["args"]["name"], "stream \"7\"\n");
}

TEST(Trace, IsValidJsonWhenEmptyAndWhenNamesAreNotText) {
  auto folder = fresh_folder();
  Trace empty(folder / "empty.json");
  empty.finish();
  EXPECT_TRUE(json::accept(read_file(folder / "empty.json")));
  Trace odd(folder / "odd.json");
  odd.add({"\xff\x01", "\\", "", now_seconds(), 0});
  odd.add({"endless", "c", "l", now_seconds(), INFINITY});
  odd.finish();
  EXPECT_EQ(events_of(json::parse(read_file(folder / "odd.json")), "X").size(), 1u);
}

TEST(Trace, TurnsRecordsIntoCounters) {
  auto path = fresh_folder() / "trace.json";
  Trace trace(path);
  Record record;
  record.loss = 0.5;
  record.samples_per_s = std::nan("");
  trace.write(record);
  trace.finish();
  auto counters = events_of(json::parse(read_file(path)), "C");
  ASSERT_EQ(counters.size(), 1u);
  EXPECT_EQ(counters[0]["args"]["value"], 0.5);
}

TEST(Trace, KeepsToItsLimitAndSaysHowManyItLeftOut) {
  auto path = fresh_folder() / "trace.json";
  Trace trace(path, {.most_events = 10});
  for (int i = 0; i < 25; ++i) trace.add({"s", "c", "l", now_seconds(), 1});
  EXPECT_EQ(trace.dropped(), 15);
  trace.finish();
  json file = json::parse(read_file(path));
  EXPECT_EQ(events_of(file, "X").size(), 10u);
  EXPECT_EQ(file["droppedEvents"], 15);
}

TEST(Trace, TakesSpansFromManyThreads) {
  auto path = fresh_folder() / "trace.json";
  Trace trace(path);
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&trace, t] {
      for (int i = 0; i < 500; ++i) trace.add({"s", "c", "lane " + std::to_string(t), now_seconds(), 1e-6});
    });
  }
  for (std::jthread& thread : threads) thread.join();
  trace.finish();
  EXPECT_EQ(events_of(json::parse(read_file(path)), "X").size(), 2000u);
}

TEST(Trace, ScopesMeasureThemselvesAndPassOverANullTrace) {
  auto path = fresh_folder() / "trace.json";
  Trace trace(path);
  { TraceScope scope(&trace, "step", "compute"); }
  { TraceScope scope(nullptr, "step", "compute"); }
  trace.finish();
  auto spans = events_of(json::parse(read_file(path)), "X");
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_GE(spans[0]["dur"].get<double>(), 0);
}

TEST(Trace, NamesAPathItCannotWriteAndLeavesNoPartBehind) {
  auto folder = fresh_folder();
  std::filesystem::create_directories(folder / "trace.json" / "in the way");
  Trace trace(folder / "trace.json");
  ::testing::internal::CaptureStderr();
  trace.finish();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr((folder / "trace.json").string()));
  EXPECT_FALSE(std::filesystem::exists(folder / "trace.json.part"));
}

}  // namespace
}  // namespace yoke::metrics
