#include "yoke/metrics/partition_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"

namespace yoke::metrics {
namespace {

PartitionRun two_parts() {
  PartitionRun run;
  run.parts = 2;
  run.nodes = {{"stem", 0, 0.1, 0.2}, {"branch", 1, 0.3, 0.4}, {"head", 0, 0.5, 0.6}};
  run.edges = {{0, 1}, {0, 2}, {1, 2}};
  run.crossings = {{0, 1, 1024, 1024}, {1, 0, 512, 256}};
  run.events = {{0, 0, SpanKind::kForward, 10, 11}, {1, 1, SpanKind::kBackward, 11, 12.5}};
  return run;
}

TEST(PartitionRun, ReadsBackAsTheSame) {
  PartitionRun run = two_parts();
  EXPECT_EQ(parse_partition_run(to_json(run), "partition.json"), run);
  EXPECT_EQ(run.cut_bytes(), 1536);
}

TEST(PartitionRun, TimesStartAtTheFirstEvent) {
  Timeline timeline = timeline_of(two_parts());
  EXPECT_EQ(timeline.rows.size(), 2u);
  EXPECT_DOUBLE_EQ(timeline.makespan, 2.5);
  EXPECT_DOUBLE_EQ(timeline.spans[0].start, 0);
}

TEST(PartitionRun, SaysWhatIsWrongAndWhere) {
  auto refusal = [](std::string text) {
    try {
      parse_partition_run(text, "partition.json");
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal("{}"), testing::HasSubstr("parts"));
  PartitionRun run = two_parts();
  run.nodes[1].part = 7;
  EXPECT_THAT(refusal(to_json(run)), testing::HasSubstr("nodes[1]: part = 7"));
  run = two_parts();
  run.edges = {{2, 1}};
  EXPECT_THAT(refusal(to_json(run)), testing::HasSubstr("edges[0]"));
  run = two_parts();
  run.events[0].end = 1;
  EXPECT_THAT(refusal(to_json(run)), testing::HasSubstr("ends before it starts"));
}

}  // namespace
}  // namespace yoke::metrics
