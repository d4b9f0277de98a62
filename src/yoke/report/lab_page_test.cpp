#include "yoke/report/lab_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/report/lanes_svg.h"
#include "yoke/report/ring_steps_svg.h"
#include "yoke/report/svg_chart.h"
#include "yoke/report/topology_svg.h"

namespace yoke::report {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

LineChart two_points() {
  return {.title = "t", .series = {{"a", {{1, 2}, {2, 3}}}}};
}

TEST(LabPage, ShowsTheQuestionFiguresTablesAndWhatFailed) {
  LabPage page;
  page.title = "A < B";
  page.question = "Which?";
  page.section("First & last");
  page.add({"one", "One", to_svg(two_points()), "below"});
  page.add({"two", "Two", to_svg(two_points()), "", /*wide=*/true});
  page.add(LabTable{{"rule", "K"}, {{"<sync>", "4"}}, {"K: gradients"}});
  const std::string html = page.html({"async: it was killed"});
  EXPECT_THAT(html,
              AllOf(HasSubstr("A &lt; B"), HasSubstr("Which?"), HasSubstr("First &amp; last"),
                    HasSubstr("&lt;sync&gt;"), HasSubstr("K: gradients"), HasSubstr("async: it was killed")));
  EXPECT_THAT(html, AllOf(HasSubstr("prefers-color-scheme: dark"), Not(HasSubstr("<script"))));
  EXPECT_EQ(page.figures().size(), 2u);
  EXPECT_THAT(page.html({}), Not(HasSubstr("killed")));
}

TEST(StandaloneSvg, HasTheColoursOfThePageAndIsLeftAloneIfItHasThem) {
  const std::string svg = standalone_svg(to_svg(two_points()));
  EXPECT_THAT(svg, AllOf(HasSubstr("xmlns=\"http://www.w3.org/2000/svg\""), HasSubstr("<style>")));
  EXPECT_EQ(standalone_svg(svg), svg);
}

TEST(LanesSvg, DrawsSpansMarksAndBothLinesOfTextWhereTheyFit) {
  LanesPicture picture{.label = "lanes"};
  picture.parts = {{.rows = {"0", "1"}, .end = 10}};
  picture.parts[0].spans = {{0, 0, 5, Look::kBlue, 0, false, false, "7", "v2", "F7"}, {1, 9.99, 10}};
  picture.parts[0].spans[1].text = "8";
  picture.parts[0].marks = {5};
  const std::string svg = lanes_svg(picture);
  EXPECT_THAT(svg, AllOf(HasSubstr(">7</text>"), HasSubstr(">v2</text>"), HasSubstr("class=\"mark\"")));
  EXPECT_THAT(svg, Not(HasSubstr(">8</text>"))) << "too narrow";
  EXPECT_THAT(lanes_svg({}), HasSubstr("</svg>"));
}

TEST(TopologySvg, DrawsDevicesLinksAndRings) {
  TopologyPicture picture{"two", {{"cpu0", 0, "cpu"}, {"gpu<0>", 1, "gpu"}, {"gpu1", 1, "gpu"}}, {}};
  picture.links = {{0, 1, "pcie", "x", 1}, {1, 2, "nvlink", "y", 2}};
  EXPECT_THAT(topology_svg(picture), AllOf(HasSubstr("gpu&lt;0&gt;"), HasSubstr("nvlink"), HasSubstr("Q")));
  EXPECT_THAT(rings_svg("r", {"a", "b", "c"}, {{0, 1, 2}}), HasSubstr("Z\"/>"));
  EXPECT_THAT(topology_svg({}), HasSubstr("</svg>"));
}

TEST(RingStepsSvg, FramesWhatArrivedAndFillsTheLinksInUse) {
  RingSteps all{.label = "two", .ranks = {1, 2}, .worker_kind = "gpu"};
  all.machine = {"two", {{"cpu0", 0, "cpu"}, {"gpu<0>", 1, "gpu"}, {"gpu1", 1, "gpu"}}, {}};
  all.machine.links = {{0, 1, "pcie", "left", 1}, {0, 2, "pcie", "right", 1}};
  all.steps = {{"start", false, {0, 0}, {-1, -1}, {{1, 1}, {1, 1}}},
               {"step 1 of 2", false, {1, 1}, {0, 1}, {{2, 1}, {1, 2}}}};
  const std::string svg = ring_steps_svg(all);
  EXPECT_THAT(svg,
              AllOf(HasSubstr("step 1 of 2"), HasSubstr("left: 1 each way"), HasSubstr("right: 0 each way"),
                    HasSubstr("rank 0, part 0: 2 of 2 ranks"), HasSubstr(" arrived"), HasSubstr(">cpu0<")));
  EXPECT_THAT(ring_steps_svg({}), HasSubstr("</svg>"));
}

}  // namespace
}  // namespace yoke::report
