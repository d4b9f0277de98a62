#include "yoke/report/timeline_svg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/report/graph_svg.h"
#include "yoke/report/pipeline_comparison.h"

namespace yoke::report {
namespace {

using metrics::SpanKind;
using ::testing::HasSubstr;
using ::testing::Not;

metrics::Timeline two_workers(const std::string& name, double scale) {
  metrics::Timeline timeline;
  timeline.name = name;
  timeline.rows = {"stage 0", "stage <1>"};
  timeline.spans = {{0, SpanKind::kForward, 0, 0, 0, scale},
                    {1, SpanKind::kForward, 0, 0, scale, 2 * scale},
                    {1, SpanKind::kBackward, 0, 0, 2 * scale, 4 * scale},
                    {0, SpanKind::kBackward, 0, 0, 4 * scale, 6 * scale},
                    {0, SpanKind::kUpdate, 1, 0, 6 * scale, 6.5 * scale}};
  timeline.makespan = 6.5 * scale;
  return timeline;
}

size_t occurrences(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++count;
  return count;
}

TEST(TimelineSvg, HasABarForEachSpanAndEscapesNames) {
  std::string svg = timeline_svg("a < b & c", {two_workers("", 1)});
  EXPECT_EQ(occurrences(svg, "><title>"), 5u);
  EXPECT_THAT(svg, HasSubstr("a &lt; b &amp; c"));
  EXPECT_THAT(svg, HasSubstr("stage &lt;1&gt;"));
  EXPECT_THAT(svg, HasSubstr("update"));
  EXPECT_THAT(svg, Not(HasSubstr("weight gradient")));
}

TEST(TimelineSvg, DrawsTwoTimelinesOnOneScale) {
  std::string svg = timeline_svg("both", {two_workers("measured", 2), two_workers("simulated", 1)});
  EXPECT_EQ(occurrences(svg, "><title>"), 10u);
  EXPECT_THAT(svg, HasSubstr("measured: "));
  EXPECT_THAT(svg, HasSubstr("simulated: "));
  EXPECT_EQ(occurrences(svg, ">stage 0<"), 2u);
}

TEST(TimelineSvg, AnEmptyTimelineIsAPictureToo) {
  EXPECT_THAT(timeline_svg("nothing", {metrics::Timeline{}}), HasSubstr("</svg>"));
}

TEST(TimelineSvg, VeryManySpansAreCutAndThatIsSaid) {
  metrics::Timeline timeline = two_workers("", 1);
  timeline.spans.resize(30'000, timeline.spans.front());
  EXPECT_THAT(timeline_svg("many", {timeline}), HasSubstr("showing the first 20000 of 30000 spans"));
}

TEST(PipelineSection, SaysHowFarTheSimulationIsOff) {
  PipelineComparison comparison{"1f1b", two_workers("measured", 2), two_workers("simulated", 1.9)};
  EXPECT_NEAR(comparison.error_percent(), -5, 1e-9);
  EXPECT_THAT(pipeline_section(comparison), HasSubstr("-5.0 %"));
  EXPECT_EQ(PipelineComparison{}.error_percent(), 0);
}

TEST(GraphSvg, DrawsNodesLinesAndWhatCrosses) {
  GraphPicture picture{
      "five <layers>", "", {{"a", 0}, {"b", 0}, {"c", 1}}, {{0, 1}, {1, 2}, {0, 2}}, {"one", "two"}};
  std::string svg = graph_svg(picture);
  EXPECT_EQ(occurrences(svg, "<circle"), 3u);
  EXPECT_EQ(occurrences(svg, "<line"), 3u);
  EXPECT_EQ(occurrences(svg, "class=\"cross\""), 2u);
  EXPECT_THAT(svg, HasSubstr("five &lt;layers&gt;"));
  EXPECT_THAT(graph_svg({}), HasSubstr("</svg>"));
}

}  // namespace
}  // namespace yoke::report
