#include "cli/lab_pipeline_accuracy.h"

#include <gtest/gtest.h>

namespace yoke::cli {
namespace {

using plan::ScheduleKind;

constexpr PipelineTiming kTiming{
    .workers = 4, .forward = 0.01, .backward = 0.02, .bandwidth = 1e6, .latency = 0};

TEST(PipelineRounds, WhoFlushesPaysTheBubbleInEveryRound) {
  for (ScheduleKind kind : {ScheduleKind::kGpipe, ScheduleKind::k1F1B}) {
    const std::vector<double> ends = pipeline_rounds(kTiming, kind, 0, 5);
    ASSERT_EQ(ends.size(), 5U);
    for (size_t i = 0; i < ends.size(); ++i)
      EXPECT_NEAR(ends[i], 7 * 0.03 * static_cast<double>(i + 1), 1e-9) << to_string(kind);
  }
}

TEST(PipelineRounds, WhoDoesNotPaysItOnce) {
  for (ScheduleKind kind : {ScheduleKind::kPipedream, ScheduleKind::k2BW}) {
    const std::vector<double> ends = pipeline_rounds(kTiming, kind, 0, 50);
    EXPECT_NEAR(ends[0], 7 * 0.03, 0.03 * 3 + 1e-9) << to_string(kind);
    EXPECT_NEAR(ends[49] - ends[9], 40 * 4 * 0.03, 1e-6) << to_string(kind);
  }
}

TEST(PipelineRounds, SlowLinksDelayWhoFlushesMore) {
  const double bytes = 5e3;  // 5 ms
  const double flushed = pipeline_rounds(kTiming, ScheduleKind::k1F1B, bytes, 50)[49];
  const double streamed = pipeline_rounds(kTiming, ScheduleKind::kPipedream, bytes, 50)[49];
  EXPECT_GT(flushed, pipeline_rounds(kTiming, ScheduleKind::k1F1B, 0, 50)[49]);
  EXPECT_GT(flushed, streamed);
}

}  // namespace
}  // namespace yoke::cli
