#include "yoke/report/loss_curve.h"

#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace yoke::report {
namespace {

using nlohmann::json;
using ::testing::IsEmpty;

TEST(ReportLossCurve, IsReadWithItsGaps) {
  auto points = loss_curve_of(json::parse(
      R"({"loss_curve": {"version": [2, 4], "seconds": [0.5, 1], "loss": [3.5, null], "gradients": [8, 6]}})"));
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[0].update, 2);
  EXPECT_EQ(points[0].loss, 3.5);
  EXPECT_TRUE(std::isnan(points[1].loss));
  EXPECT_EQ(points[1].gradients, 6);
}

TEST(ReportLossCurve, WhatCannotBeIsNone) {
  for (const char* text :
       {R"({})", R"([])", R"({"loss_curve": 7})", R"({"loss_curve": {"version": [1]}})",
        R"({"loss_curve": {"version": ["x"], "seconds": [1], "loss": [1], "gradients": [1]}})",
        R"({"loss_curve": {"version": [1, 2], "seconds": [1], "loss": [1], "gradients": [1]}})"})
    EXPECT_THAT(loss_curve_of(json::parse(text)), IsEmpty()) << text;
}

TEST(ReportLossCurve, CoarserIsTheMeanOverGradients) {
  std::vector<LossPoint> points = {{1, 1, 4, 1}, {2, 2, 1, 2}, {3, 3, 7, 1}};
  auto coarse = coarser(points, 2);
  ASSERT_EQ(coarse.size(), 2u);
  EXPECT_EQ(coarse[0].update, 2);
  EXPECT_EQ(coarse[0].seconds, 2);
  EXPECT_EQ(coarse[0].loss, 2);
  EXPECT_EQ(coarse[1].loss, 7);
  EXPECT_EQ(coarser(points, 9).size(), 3u);
  EXPECT_THAT(coarser({}, 9), IsEmpty());
}

TEST(ReportLossCurve, StandsInThePlaceOfRecords) {
  std::vector<metrics::Record> records(4);
  for (size_t i = 0; i < records.size(); ++i) {
    records[i].step = 10 * static_cast<int64_t>(i + 1);
    records[i].loss = -1;
  }
  EXPECT_EQ(with_curve(records, {}).size(), 4u);
  auto all = with_curve(records, {{15, 1, 3, 1}, {20, 2, 2, 1}, {25, 3, 1, 1}});
  std::vector<int64_t> steps;
  for (const metrics::Record& record : all) steps.push_back(record.step);
  EXPECT_THAT(steps, ::testing::ElementsAre(10, 15, 20, 25, 30, 40));
  EXPECT_EQ(all[2].loss, 2);
}

}  // namespace
}  // namespace yoke::report
