#include "yoke/report/svg_chart.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "yoke/report/html.h"

namespace yoke::report {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

int count(const std::string& text, const std::string& piece) {
  int found = 0;
  for (size_t at = text.find(piece); at != std::string::npos; at = text.find(piece, at + 1)) ++found;
  return found;
}

// Coordinates must be numbers whatever the data were.
void expect_sound(const std::string& svg) {
  EXPECT_THAT(svg, StartsWith("<svg"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf\"")));
  EXPECT_EQ(count(svg, "<g"), count(svg, "</g>"));
  EXPECT_EQ(count(svg, "<text"), count(svg, "</text>"));
}

TEST(Escape, LeavesNothingThatHtmlWouldRead) {
  EXPECT_EQ(escape("<a href=\"x\">'&'</a>"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;&lt;/a&gt;");
  EXPECT_EQ(escape(std::string("a\0b\x1b\n", 5)),
            "a\xef\xbf\xbd"
            "b\xef\xbf\xbd\n");
}

TEST(LineChart, IsAnImageWithATitleLabelsAndALegend) {
  LineChart chart{.title = "Loss <over> steps", .x_label = "step", .y_label = "loss"};
  chart.series = {{"training", {{1, 3}, {2, 2}}, 1}, {"test", {{2, 2.5}}, 2}};
  std::string svg = to_svg(chart);
  expect_sound(svg);
  EXPECT_THAT(svg, HasSubstr("role=\"img\""));
  EXPECT_THAT(svg, HasSubstr("<title>Loss &lt;over&gt; steps</title>"));
  EXPECT_THAT(svg, HasSubstr(">step</text>"));
  EXPECT_THAT(svg, HasSubstr(">loss</text>"));
  EXPECT_THAT(svg, HasSubstr(">training</tspan>"));
  EXPECT_THAT(svg, HasSubstr("<title>step 2\ntraining: 2\ntest: 2.5</title>"));
}

// Ten names do not fit beside the label: they get rows of their own, and the chart grows by them.
TEST(LineChart, ManySeriesKeepALegendInsideTheChart) {
  LineChart few{.y_label = "loss"}, many{.y_label = "loss"};
  for (int i = 1; i <= 10; ++i) {
    Series one{.name = fmt::format("gossip_hypercube_{}", i), .points = {{1, 3}, {2, 2}}, .colour = i};
    if (i <= 2) few.series.push_back({.name = fmt::format("rule {}", i), .points = one.points, .colour = i});
    many.series.push_back(std::move(one));
  }
  EXPECT_THAT(to_svg(few), AllOf(HasSubstr("viewBox=\"0 0 480 262\""), Not(HasSubstr("translate"))));
  const std::string svg = to_svg(many);
  expect_sound(svg);
  EXPECT_THAT(svg, AllOf(HasSubstr("viewBox=\"0 0 480 352\""), HasSubstr("translate(0 90)")));
  EXPECT_EQ(count(svg, "●"), 10);
  for (int i = 1; i <= 10; ++i) EXPECT_EQ(count(svg, fmt::format("class=\"line c{}\"", i)), 1) << i;
}

TEST(LineChart, TheoryIsDashedAndHasNoDots) {
  LineChart chart{.series = {{"measured", {{1, 3}, {2, 2}}, 1}}};
  chart.series.push_back({.name = "1/n", .points = {{1, 3}, {2, 1.5}}, .colour = 1, .theory = true});
  const std::string svg = to_svg(chart);
  expect_sound(svg);
  EXPECT_EQ(count(svg, "class=\"line theory c1\""), 1);
  EXPECT_EQ(count(svg, "r=\"3\""), 2) << "dots of the measured points only";
  EXPECT_THAT(svg, HasSubstr("╌"));
}

TEST(LineChart, ALogarithmicXAxisHasTicksAtPowersInItsUnit) {
  LineChart chart{.log_x = true, .whole_x = false, .x_unit = Unit::kBytes};
  chart.series = {{"a", {{1e3, 3}, {1e6, 2}, {1e9, 1}}}};
  const std::string svg = to_svg(chart);
  expect_sound(svg);
  EXPECT_THAT(svg, AllOf(HasSubstr(">1 kB</text>"), HasSubstr(">1 MB</text>"), HasSubstr(">1 GB</text>")));
  EXPECT_THAT(svg, HasSubstr("cx=\"263.0\"")) << "a megabyte is half way";
}

TEST(LineChart, TimesHaveTicksBetweenWholeNumbersAndStepsDoNot) {
  LineChart chart{.series = {{"a", {{0, 3}, {0.4, 2}}}}};
  EXPECT_THAT(to_svg(chart), Not(HasSubstr(">0.2</text>")));
  chart.whole_x = false;
  EXPECT_THAT(to_svg(chart), HasSubstr(">0.2</text>"));
}

TEST(LineChart, SharesEndAtAHundredPercent) {
  LineChart chart{.unit = Unit::kPercent, .series = {{"a", {{1, 0.93}, {2, 0.995}}}}};
  EXPECT_THAT(to_svg(chart), AllOf(HasSubstr(">100%</text>"), Not(HasSubstr(">102%</text>"))));
}

TEST(LineChart, NeedsNoLegendForOneSeries) {
  LineChart chart{.series = {{"only", {{1, 3}, {2, 2}}}}};
  EXPECT_THAT(to_svg(chart), Not(HasSubstr(">only</tspan>")));
}

TEST(LineChart, SurvivesNoPointsOnePointAndEqualPoints) {
  expect_sound(to_svg(LineChart{}));
  EXPECT_THAT(to_svg(LineChart{}), HasSubstr("no data"));
  LineChart one{.series = {{"a", {{10, 2.5}}}}};
  expect_sound(to_svg(one));
  EXPECT_THAT(to_svg(one), HasSubstr("<circle"));
  LineChart flat{.series = {{"a", {{10, 0}, {20, 0}}}}};
  expect_sound(to_svg(flat));
}

TEST(LineChart, LeavesGapsWhereValuesAreNotFiniteAndTintsThem) {
  LineChart chart{.series = {{"a", {{1, 1}, {2, NAN}, {3, INFINITY}, {4, 2}, {5, 3}}}}};
  std::string svg = to_svg(chart);
  expect_sound(svg);
  EXPECT_EQ(count(svg, "not finite</text>"), 1);
  EXPECT_EQ(count(svg, "h0"), 2);
  LineChart nothing{.series = {{"a", {{1, NAN}, {2, NAN}}}}};
  expect_sound(to_svg(nothing));
}

TEST(LineChart, SurvivesHugeAndTinyNumbers) {
  LineChart chart{.series = {{"a", {{0, -1.7e308}, {1e18, 1.7e308}, {2e18, 5e-324}}}}};
  expect_sound(to_svg(chart));
}

TEST(LineChart, DrawsOnALogarithmicAxisOnlyWhatIsPositive) {
  LineChart chart{.log = true, .series = {{"a", {{1, 0.001}, {2, 1000}}}}};
  EXPECT_THAT(to_svg(chart), HasSubstr(">0.001</text>"));
  chart.series[0].points.push_back({3, 0});
  expect_sound(to_svg(chart));
}

TEST(LineChart, StaysSmallForLongRuns) {
  LineChart chart{.series = {{"a", {}}}};
  for (int i = 0; i < 200000; ++i)
    chart.series[0].points.push_back({static_cast<double>(i), std::sin(i * 0.01)});
  EXPECT_LT(to_svg(chart).size(), 60000u);
}

TEST(StackedBars, StackTheirLayersAndTellThem) {
  StackedBars chart{
      .title = "Time", .x_label = "step", .unit = Unit::kSeconds, .layers = {"data", "forward"}};
  chart.bars = {{0, 10, {0.001, 0.003}}, {10, 20, {0.002, NAN}}};
  std::string svg = to_svg(chart);
  expect_sound(svg);
  EXPECT_THAT(svg, HasSubstr("step 0 to 10\nforward: 3 ms\ndata: 1 ms"));
  EXPECT_EQ(count(svg, "class=\"bar c1\""), 2);
  expect_sound(to_svg(StackedBars{}));
  expect_sound(to_svg(StackedBars{.bars = {{5, 5, {1}}}}));
  expect_sound(to_svg(StackedBars{.bars = {{0, 5, {0, -1}}}}));
}

TEST(StackedBars, ShowWhatAFormulaPredicts) {
  StackedBars chart{.title = "Memory", .x_label = "stage", .layers = {"weights"}};
  chart.bars = {{0, 1, {4}, "0"}, {1, 2, {1}, "1", 2}};
  std::string svg = to_svg(chart);
  expect_sound(svg);
  EXPECT_EQ(count(svg, "class=\"line theory c6\""), 1);
  EXPECT_THAT(svg, HasSubstr("stage 1\nweights: 1\nformula: 2"));
  EXPECT_THAT(svg, HasSubstr(">formula</tspan>"));
}

TEST(StackedBars, ShowTheSpreadOfRepetitions) {
  StackedBars chart{.x_label = "rule", .layers = {"time"}};
  chart.bars = {{0, 1, {2}, "", 0, 1, 4}, {1, 2, {3}, "", 0, 3, 3}};
  const std::string svg = to_svg(chart);
  expect_sound(svg);
  EXPECT_EQ(count(svg, "class=\"whisker\""), 1);
  EXPECT_EQ(count(svg, "from 1 to 4"), 1);
  EXPECT_EQ(count(svg, ">4<"), 1);  // the axis reaches its end
}

TEST(StackedBars, OfWholeNumbersHaveTicksOnlyThere) {
  std::string svg = to_svg(histogram("Staleness", "updates late", "gradients", {600}));
  expect_sound(svg);
  EXPECT_THAT(svg, HasSubstr("updates late 0\n"
                             "gradients: 600"));
  EXPECT_THAT(svg, Not(HasSubstr(">0.5<")));
  EXPECT_THAT(svg, Not(HasSubstr(">-0.4<")));
  EXPECT_EQ(count(svg, "class=\"bar c1\""), 8);  // one number alone does not fill the axis
  expect_sound(to_svg(histogram("t", "x", "y", {})));
}

TEST(ThinOut, KeepsHighsLowsAndGaps) {
  std::vector<Point> points;
  for (int i = 0; i < 10000; ++i) points.push_back({static_cast<double>(i), 0});
  points[3333].y = 7;
  points[6666].y = -7;
  points[5000].y = NAN;
  std::vector<Point> thin = thin_out(points, 100);
  EXPECT_LE(thin.size(), 160u);
  auto has = [&thin](double x) {
    return std::any_of(thin.begin(), thin.end(), [x](const Point& p) { return p.x == x; });
  };
  EXPECT_TRUE(has(3333));
  EXPECT_TRUE(has(6666));
  EXPECT_TRUE(has(5000));
  for (size_t i = 1; i < thin.size(); ++i) EXPECT_LT(thin[i - 1].x, thin[i].x);
}

TEST(LineChart, NamesLonePointsBesideThemInsteadOfInALegend) {
  LineChart chart{.log = true, .log_x = true};
  chart.series = {{"ddp", {{1, 10}}}, {"zero2", {{1, 10}}}, {"local", {{100, 1000}}}};
  const std::string svg = to_svg(chart);
  expect_sound(svg);
  EXPECT_EQ(count(svg, "class=\"key"), 0);
  for (const char* name : {">ddp<", ">zero2<", ">local<"}) EXPECT_EQ(count(svg, name), 1) << name;
  chart.series[2].points.push_back({200, 2000});
  EXPECT_EQ(count(to_svg(chart), "class=\"key"), 3);
}

TEST(StackedBars, SlantsNamesThatDoNotFitSideBySide) {
  StackedBars chart{.layers = {"time"}};
  for (int i = 0; i < 4; ++i) chart.bars.push_back({i + 0.0, i + 0.8, {1.0 + i}, "ps_async"});
  EXPECT_EQ(count(to_svg(chart), "rotate("), 0);
  for (int i = 4; i < 12; ++i) chart.bars.push_back({i + 0.0, i + 0.8, {1.0 + i}, "ps_async"});
  const std::string svg = to_svg(chart);
  expect_sound(svg);
  EXPECT_EQ(count(svg, "rotate("), 12);
}

TEST(Smooth, IsTheMeanOfNeighboursAndPassesOverGaps) {
  std::vector<Point> points = {{0, 1}, {1, 2}, {2, NAN}, {3, 4}, {4, 6}};
  std::vector<Point> smoothed = smooth(points, 1);
  EXPECT_EQ(smoothed[0].y, 1);
  EXPECT_EQ(smoothed[1].y, 1.5);
  EXPECT_TRUE(std::isnan(smoothed[2].y));
  EXPECT_EQ(smoothed[3].y, 5);
  EXPECT_EQ(smoothed[4].y, 5);
}

}  // namespace
}  // namespace yoke::report
